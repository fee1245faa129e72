//! Two diagrams: the walk over the tiles, and what is done in one of them.

use crate::figures::{
    BLUE, Color, KEY, MUTED, QUERY, TEXT, VALUE, VERMILION, arrow, filled, framed, label,
    text_box,
};
use crate::output::Page;
use anyhow::Result;

/// The matrix of scores in tiles, and the way through it: down one column after the other.
pub fn walk(page: &mut Page) -> Result<()> {
    const CELL: i32 = 46;
    const TILES: i32 = 5;
    const HERE: (i32, i32) = (2, 2); // the tile at work: row, column
    let (left, top) = (150, 76);
    page.figure(
        "walk",
        (
            "The matrix of scores in tiles, with the walk of the backward pass",
            "A grid of five by five tiles, with the tiles of queries down the side and those of keys on top. The walk goes down one \
         column. The keys and values of this column, and their gradients below it, stay. From the left a tile of queries, \
         gradients of outputs, log-sum-exps and D flows into the tile, and to the right its share of the queries' gradients \
         flows out.",
        ),
        (520, 400),
        |area| {
            for (i, j) in (0..TILES).flat_map(|i| (0..TILES).map(move |j| (i, j))) {
                let corner = (left + CELL * j, top + CELL * i);
                let corners = [corner, (corner.0 + CELL - 3, corner.1 + CELL - 3)];
                let done = j < HERE.1 || (j == HERE.1 && i < HERE.0);
                let (colour, strength) = match (done, (i, j) == HERE) {
                    (_, true) => (BLUE, 0.75),
                    (true, _) => (BLUE, 0.25),
                    _ => (MUTED, 0.08),
                };
                filled(area, corners, colour.mix(strength))?;
                framed(area, corners, MUTED.mix(0.5))?;
            }
            let middle = |index| CELL * index + (CELL - 3) / 2;
            let (column, row) = (left + middle(HERE.1), top + middle(HERE.0));
            let bottom = top + CELL * TILES;
            let down = [(column, row + 12), (column, bottom - 18)];
            arrow(area, &down, TEXT)?;

            let stays = (column - 52, 28);
            text_box(area, stays, (104, 34), "K, V: stay", KEY)?;
            arrow(area, &[(column, 62), (column, top - 3)], KEY)?;
            text_box(area, (column - 78, bottom + 30), (156, 34), "dK, dV: grow", KEY)?;
            arrow(area, &[(column, bottom + 2), (column, bottom + 28)], KEY)?;

            let flows = [(0, "Q, dO"), (1, "L, D")];
            for (line, text) in flows {
                let corner = (18, row - 38 + 40 * line);
                text_box(area, corner, (74, 34), text, QUERY)?;
            }
            arrow(area, &[(94, row), (left - 4, row)], QUERY)?;
            let right = left + CELL * TILES;
            arrow(area, &[(right, row), (right + 46, row)], QUERY)?;
            text_box(area, (right + 48, row - 17), (74, 34), "dQ +=", QUERY)?;

            label(area, (left + CELL * TILES / 2, 12), "tiles of keys", KEY)?;
            label(area, (55, top + 8), "tiles of", QUERY)?;
            label(area, (55, top + 28), "queries", QUERY)
        },
    )
}

/// The five products of a tile, and what lies between them.
pub fn one_tile(page: &mut Page) -> Result<()> {
    page.figure(
        "tile",
        (
            "The backward pass of one tile",
            "Two products stand at the top: first, scores from queries and keys, again; second, the gradient of the weights from \
         the gradient of the output and the values. The log-sum-exp turns scores into weights. Weights, their gradient and D give \
         the gradient of the scores. From the weights comes the third product, the share in the gradient of the values; from the \
         gradient of the scores the fourth and the fifth, those of the queries and the keys.",
        ),
        (520, 296),
        |area| {
            let block = |corner, width, text, colour| {
                text_box(area, corner, (width, 36), text, colour)
            };
            block((8, 8), 230, "1.  S = Q Kᵀ / √d", VERMILION)?;
            block((282, 8), 230, "2.  dA = dO Vᵀ", BLUE)?;
            arrow(area, &[(123, 44), (123, 108)], MUTED)?;
            arrow(area, &[(397, 44), (397, 108)], MUTED)?;
            label(area, (146, 74), "L", TEXT)?;
            label(area, (422, 74), "D", TEXT)?;
            block((8, 110), 230, "A = exp(S + M − L)", MUTED)?;
            block((282, 110), 230, "dS = A ⊙ (dA − D)", MUTED)?;
            arrow(area, &[(238, 128), (280, 128)], MUTED)?;
            arrow(area, &[(88, 146), (88, 250)], VALUE)?;
            arrow(area, &[(340, 146), (262, 250)], QUERY)?;
            arrow(area, &[(433, 146), (433, 250)], KEY)?;
            block((8, 252), 160, "3.  dV += Aᵀ dO", VALUE)?;
            block((180, 252), 160, "4.  dQ += dS K / √d", QUERY)?;
            block((352, 252), 160, "5.  dK += dSᵀ Q / √d", KEY)
        },
    )
}
