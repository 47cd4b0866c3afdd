"""What users see: plans, explanations and refusals as text, pictures and pages, made of plain data."""
