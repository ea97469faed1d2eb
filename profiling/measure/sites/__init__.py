"""Sites: the places where steps run, one file each; `site.py` defines a site."""
