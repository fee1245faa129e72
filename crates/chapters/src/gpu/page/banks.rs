//! Clocks of shared memory, and the banks that a tile falls into.

use crate::figures::format::integer;
use crate::figures::{Area, BLUE, Color, MUTED, TEXT, filled, label, text};
use crate::gpu::banks::{Clocks, clocks_with_padding, eight_rows};
use crate::gpu::machine::BANKS;
use crate::output::Page;
use anyhow::Result;
use laboratory::gpu::{Ask, busiest_bank};

pub fn generate(page: &mut Page) -> Result<()> {
    let (without, with) = (Clocks::without_remedies(), Clocks::with_remedies());
    let row = |what: &str, remedy: &str, clocks: fn(&Clocks) -> usize| {
        let [what, remedy] = [what, remedy].map(str::to_owned);
        vec![what, remedy, integer(clocks(&without)), integer(clocks(&with))]
    };
    let rows = [
        row("four words of 2 queries", "four words of padding", |c| c.registers[0]),
        row("four words of 16 keys", "swizzle", |c| c.registers[1]),
        row("four words of a value by 16 lanes", "none needed", |c| c.registers[3]),
    ];
    let header = ["what a warp loads", "remedy", "clocks without", "with it"];
    page.table("banks", &header, &rows);
    page.value("column-of-queries", integer(without.tiled[0]));
    page.value("column-of-keys", integer(without.tiled[1]));
    page.value("conflict-matrix", integer(without.matrices));
    page.value("conflict-matrix-swizzled", integer(with.matrices));
    for words in [4, 8] {
        page.value(format!("padding-{words}"), integer(clocks_with_padding(words)));
    }
    let [plain, swizzled] = eight_rows();
    let panels =
        [("16 bytes each, rows of 128 bf16", plain), ("the same, swizzled", swizzled)];
    draw(
        page,
        "swizzle",
        "In the first, the same four banks are marked in all rows. In the second, each row has four other banks, and all 32 \
         are marked once.",
        &panels,
    )
}

const CELL: i32 = 13;
const LEFT: i32 = 70;
const WIDTH: i32 = CELL * BANKS as i32;
/// The size of a panel.
const HEIGHT: i32 = CELL * 8 + 46;

/// Eight rows of a tile, one below the other, and the banks in which a piece of each lies.
fn draw(
    page: &mut Page,
    name: &str,
    says: &str,
    panels: &[(&str, Vec<Ask>); 2],
) -> Result<()> {
    let title = "Banks of shared memory that eight rows of a tile fall into";
    let says = format!(
        "Two panels, each with eight rows and a column for each of the 32 banks. {says}"
    );
    let size = ((LEFT + WIDTH + 12) as u32, (2 * HEIGHT + 26) as u32);
    page.figure(name, (title, &says), size, |area| {
        for (i, (heading, asks)) in (0..).zip(panels) {
            let top = HEIGHT * i + 30;
            text(area, (LEFT, top - 14), heading)?;
            for (row, ask) in (0..).zip(asks) {
                draw_row(area, top + CELL * row, *ask)?;
            }
            let clocks = match busiest_bank(asks) {
                1 => "1 clock".to_owned(),
                clocks => format!("{clocks} clocks"),
            };
            label(area, (LEFT / 2 - 2, top + CELL * 4), &clocks, TEXT)?;
        }
        label(area, (LEFT + WIDTH / 2, 2 * HEIGHT + 14), "bank 0 … 31", MUTED)
    })
}

fn draw_row(area: &Area, top: i32, ask: Ask) -> Result<()> {
    for bank in 0..BANKS {
        let left = LEFT + CELL * bank as i32;
        let asked = ask.words().any(|word| word % BANKS == bank);
        let fill = if asked { BLUE.mix(1.0) } else { MUTED.mix(0.15) };
        filled(area, [(left, top), (left + CELL - 2, top + CELL - 2)], fill)?;
    }
    Ok(())
}
