"""What figures are drawn with: the page, its style, panels, marks, legends and text."""
