"""Cuts the fonts that many pages load down to the letters that the book uses: theme/LICENSES.md.

    pip install fonttools==4.68.0 brotli==1.2.1
    cargo xtask build
    python3 theme/cut_fonts.py

writes the cut files to theme/fonts, and the ranges of letters of both halves to theme/fonts/fonts.css. A letter that no
page used when this ran comes from the whole file. The name in a cut file is that of the file, as the OFL asks of a changed font.
"""

import html
import re
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

THEME = Path(__file__).parent
BOOK = THEME.parent / "target/book"

# The whole file, and what is left of it.
CUTS = {
    "source-serif-4-latin-400-normal": "serif-letters",
    "source-serif-4-latin-400-italic": "serif-italic-letters",
    "source-serif-4-latin-600-normal": "serif-semibold-letters",
    "source-sans-3-latin-wght-normal": "sans-letters",
    "source-code-pro-latin-wght-normal": "monospaced-letters",
    "source-sans-3-greek-wght-normal": "sans-greek-letters",
    "source-code-pro-greek-wght-normal": "monospaced-greek-letters",
    "KaTeX_Main-Regular": "maths-letters",
    "KaTeX_Math-Italic": "maths-italic-letters",
}


def used():
    """Every character of the pages and of what their scripts write, and all of ASCII, with tabs and ends of lines."""
    texts = [html.unescape(re.sub(r"<(script|style|template)\b.*?</\1>|<[^>]*>", "", page.read_text(encoding="utf-8"), flags=re.S))
             for page in BOOK.glob("*.html")]
    texts += [script.read_text(encoding="utf-8") for script in (THEME.parent / "crates/playground/web").glob("*.js")]
    # Of what a browser adds: bullets, hyphens and dashes.
    return {*range(0x7F), *range(0x2010, 0x2015), *range(0x2018, 0x201E), 0x2022, *(ord(character) for text in texts for character in text)}


def cut(source, target, characters):
    """Writes the letters of one font among `characters`; the numerals are those that the style sheet asks for."""
    options = Options(flavor="woff2", name_IDs=["*"])
    options.layout_features += ["lnum", "tnum"]
    font = TTFont(source)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=characters)
    subsetter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4, 6, 16, 25):
            record.string = target.stem
    font.flavor = "woff2"
    font["head"].modified = font["head"].created
    font.recalcTimestamp = False
    font.save(target)


def parse(ranges):
    """The characters of a `unicode-range`."""
    characters = set()
    for part in ranges.split(","):
        first, _, last = part.strip().removeprefix("U+").partition("-")
        characters.update(range(int(first, 16), int(last or first, 16) + 1))
    return characters


def written(characters):
    """A `unicode-range` of these characters."""
    ranges = []
    for character in sorted(characters):
        if ranges and ranges[-1][1] == character - 1:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return ", ".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in ranges)


def main():
    rules_file = THEME / "fonts/fonts.css"
    rules = rules_file.read_text(encoding="utf-8")
    characters = used()
    for whole, part in CUTS.items():
        find = lambda name: re.search(r"@font-face \{[^}]*?" + re.escape(f"fonts/{name}.woff2") + r".*?\n?\}\n", rules, re.S)
        face = find(whole)
        ranges = re.search(r"unicode-range: ([^;]*);", face[0])
        old = find(part)
        everything = parse(ranges[1]) if ranges else set(range(0x110000))
        if old:
            everything |= parse(re.search(r"unicode-range: ([^;]*);", old[0])[1])
        # Those that the font lacks, too: for a letter in its range a browser fetches the whole file, and finds nothing there.
        mine = characters & everything
        cut(THEME / f"fonts/{whole}.woff2", THEME / f"fonts/{part}.woff2", mine)
        separator, end = ("\n  ", "\n}\n") if "\n  " in face[0] else (" ", " }\n")

        def ranged(name, letters):
            rule = re.sub(r"\s*(unicode-range: [^;]*;)?\s*\}\n$", "", face[0]).replace(f"fonts/{whole}.woff2", f"fonts/{name}.woff2")
            return f"{rule}{separator}unicode-range: {written(letters)};{end}"

        if old:
            rules = rules.replace(old[0], "")
        rules = rules.replace(face[0], ranged(part, mine) + ranged(whole, everything - mine))
    rules_file.write_text(rules, encoding="utf-8")


main()
