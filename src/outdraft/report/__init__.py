"""Results for people: tables and live displays for a terminal, and the page of a tuning run."""
