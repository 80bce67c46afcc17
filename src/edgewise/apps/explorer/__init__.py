"""The explorer: a page that shows a model's attention on graphs that its reader draws. Its source is in web/."""
