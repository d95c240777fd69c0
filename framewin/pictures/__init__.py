"""Pictures, films and charts of frames."""
