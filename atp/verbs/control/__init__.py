"""Gates and limits, and the scope that each is for: a Type, a lane, or everything."""
