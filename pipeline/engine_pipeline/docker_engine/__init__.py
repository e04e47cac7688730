"""The Docker Engine: reaching it, its images, and what its refusals mean."""
