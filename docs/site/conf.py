"""Sphinx's configuration of the site that tools/build-docs builds."""

import gc

gc.disable()  # a collection walks every document of the site, again and again

project = "Sonde"
extensions = ["myst_parser", "breathe"]
source_suffix = {".md": "markdown"}
breathe_projects = {"sonde": ""}  # tools/build-docs names the folder
breathe_default_project = "sonde"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Sonde"
html_copy_source = False
html_show_sphinx = False
highlight_language = "text"
pygments_style = "default"
html_static_path = ["static"]
html_css_files = ["site.css"]
