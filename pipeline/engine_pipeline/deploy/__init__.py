"""Make a target serve what its channel says, and find out whether it still does."""
