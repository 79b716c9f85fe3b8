"""The web page, as hosts of Gradio programs expect it: `python app.py` (see showattend/app.py)."""

from showattend.app import main

if __name__ == "__main__":
    main()
