"""What the user has now against the store, on their own data: `framewin bench`."""
