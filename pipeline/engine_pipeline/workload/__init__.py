"""Load as data: how long prompts and answers are, what they share, and when requests come.

Values and arithmetic alone; who sends it is `gates.lane_run`.
"""
