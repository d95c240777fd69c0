"""A dataset in the form that each training framework reads."""
