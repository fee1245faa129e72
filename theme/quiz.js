// Quick questions: choices with a reason for each wrong one, and numbers that are typed. Without this script the choices stay hidden, and
// the page has the question and its folded answer, as on paper. What was answered stays in the browser.
'use strict';
(() => {
    const STORE = 'attention-built-answers';
    const page = location.pathname.split('/').pop().replace(/\.html$/, '');
    // The storage may be shut, and others may have written to it.
    const parsed = name => {
        try {
            return JSON.parse(localStorage.getItem(name));
        } catch {
            return null;
        }
    };
    const stored = () => {
        const pages = parsed(STORE);
        return typeof pages === 'object' && pages !== null ? pages : {};
    };
    const remember = number => {
        const pages = stored();
        pages[page] = [...new Set([...Array.isArray(pages[page]) ? pages[page] : [], number])].sort((a, b) => a - b);
        try {
            localStorage.setItem(STORE, JSON.stringify(pages));
        } catch { /* It is not kept, then. */ }
    };
    const element = (tag, properties) => Object.assign(document.createElement(tag), properties);

    // '3/4', '0.75' and '0,75'; nothing else is a number here.
    const numberOf = text => {
        const words = text.trim().replace('−', '-').replace(',', '.').split('/');
        const numbers = words.map(word => /^\s*-?(\d+\.?\d*|\.\d+)(e-?\d+)?\s*$/i.test(word) ? Number(word) : NaN);
        return numbers.length > 2 ? NaN : numbers.reduce((above, below) => above / below);
    };
    // Half a unit of the last digit that is given.
    const slack = text => {
        const digits = text.trim().match(/\.(\d+)$/)?.[1].length;
        return digits ? 0.5000001 * 10 ** -digits : 1e-9 * Math.max(1, Math.abs(numberOf(text)));
    };

    // The entries of a list: what is chosen, whether it is right, and the reason where it is not.
    const entries = list => [...list.querySelectorAll(':scope > ul > li')].map(item => {
        const box = item.querySelector('input');
        const right = box.checked;
        box.remove();
        // A link to the glossary would be a link in a button.
        item.querySelectorAll('a.term').forEach(link => link.replaceWith(...link.childNodes));
        const [text, ...reasons] = item.querySelectorAll(':scope > p').length ? item.children : [item];
        return { text, reasons, right };
    });

    // A button's content is read aloud as plain text, which leaves the roots and powers of a formula out; so its source stands in for it.
    const spellFormulas = button => button.querySelectorAll('.katex-mathml').forEach(formula => {
        const source = formula.querySelector('annotation').textContent;
        formula.textContent = source.replace(/\\text|\\,|[{}]/g, ' ').replace(/\^/g, ' to the ').replace(/[\\_]/g, ' ');
    });

    document.querySelectorAll('.quiz :is(.choices, .typed)').forEach((list, index) => {
        const number = index + 1;
        const question = list.previousElementSibling;
        const answer = list.nextElementSibling;
        question.id = `question-${number}`;
        const items = entries(list);
        const verdict = element('div', { className: 'verdict' });
        verdict.setAttribute('role', 'status');
        const say = (word, reasons) => verdict.replaceChildren(element('strong', { textContent: word }), ...reasons);
        const solved = () => {
            list.classList.add('solved');
            answer.open = true;
            say('Right.', []);
            remember(number);
        };
        list.setAttribute('role', 'group');
        list.setAttribute('aria-labelledby', question.id);
        if (list.matches('.choices')) {
            const buttons = items.map(({ text, reasons, right }) => {
                const button = element('button', { type: 'button' });
                button.append(...text.childNodes);
                spellFormulas(button);
                button.addEventListener('click', () => {
                    button.classList.add(right ? 'right' : 'wrong');
                    right ? solved() : say('No.', reasons);
                });
                return button;
            });
            list.replaceChildren(...buttons, verdict);
        } else {
            const form = element('form', {});
            const field = element('input', { type: 'text', inputMode: 'decimal', autocomplete: 'off', size: 8 });
            field.setAttribute('aria-labelledby', question.id);
            form.append(field, element('button', { textContent: 'Check' }));
            form.addEventListener('submit', event => {
                event.preventDefault();
                const typed = numberOf(field.value);
                const found = items.find(({ text }) =>
                    Math.abs(numberOf(text.textContent) - typed) <= slack(text.textContent));
                if (Number.isNaN(typed)) {
                    say('That is not a number.', [element('p', { textContent: 'Type digits, such as 12, 0.5 or 1/2.' })]);
                } else if (found?.right) {
                    solved();
                } else {
                    say('No.', found ? found.reasons : []);
                }
            });
            list.replaceChildren(form, verdict);
        }
        if (stored()[page]?.includes?.(number)) {
            list.classList.add('solved');
            say('You have answered this.', []);
        }
        list.hidden = false;
    });

    // On the page that has a place for it: what the browser keeps of this and of reader.js, to take along or to erase.
    document.querySelectorAll('[data-progress]').forEach(place => {
        const line = element('p', {});
        const kept = () => Object.fromEntries(Object.keys(localStorage).filter(name => name.startsWith('attention-built-'))
            .map(name => [name.slice('attention-built-'.length), parsed(name)]));
        const show = () => {
            const { answers, read } = kept();
            const count = (number, noun) => `${number} ${noun}${number === 1 ? '' : 's'}`;
            const answered = Object.values(answers ?? {}).filter(Array.isArray).flat().length;
            const chapters = count(Array.isArray(read) ? read.length : 0, 'chapter');
            line.textContent = `You have read ${chapters} to the end and answered ${count(answered, 'quick question')}.`;
        };
        const save = element('button', { type: 'button', textContent: 'Export' });
        save.addEventListener('click', () => {
            const file = new Blob([`${JSON.stringify(kept(), null, 2)}\n`], { type: 'application/json' });
            const link = element('a', { href: URL.createObjectURL(file), download: 'attention-built-progress.json' });
            link.click();
            URL.revokeObjectURL(link.href);
        });
        const erase = element('button', { type: 'button', textContent: 'Erase' });
        erase.addEventListener('click', () => {
            if (confirm('Erase what you have read and answered on all pages?')) {
                Object.keys(kept()).forEach(name => localStorage.removeItem(`attention-built-${name}`));
                document.querySelectorAll('.reading-mark').forEach(mark => mark.remove());
                show();
            }
        });
        try {
            show();
        } catch {
            return; // The storage is shut, so there is nothing to show.
        }
        place.replaceChildren(line, save, erase);
        place.hidden = false;
    });
})();
