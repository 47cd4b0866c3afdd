"""Reports for users: plans, explanations and refusals as text, pictures and pages, made from plain data."""
