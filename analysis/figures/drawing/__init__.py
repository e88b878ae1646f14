"""Drawing tools of figures: the page, its style, panels, marks, legends and text."""
