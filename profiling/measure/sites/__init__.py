"""Sites: the places where steps run, one file each; `site.py` says what a site is."""
