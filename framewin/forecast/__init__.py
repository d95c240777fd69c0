"""A frame predictor at work: trained, scored and shown."""
