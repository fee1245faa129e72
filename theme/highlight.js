// A small highlighter for the languages of this book, behind the two functions that mdBook's book.js calls. It marks
// the text where it stands, so that the spans mdBook makes for hidden lines stay as they are.
'use strict';
window.hljs = (() => {
    const words = text => new Set(text.split(' '));

    const cComment = /\/\/[^\n]*|\/\*[^]*?\*\//;
    const hashComment = /#[^\n]*/;
    const doubleQuoted = /"(?:\\[^]|[^"\\])*"/;
    const singleQuoted = /'(?:\\[^]|[^'\\\n])*'/;
    const number = /\b(?:0[xb][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)(?:_?(?:[fiu]\d+|[iu]size)|[fuUlL]+)?\b/;

    // For each language: how its tokens look, tried in this order; then its words.
    const languages = {
        rust: {
            tokens: {
                comment: cComment,
                string: /\bb?r(?<hashes>#*)"[^]*?"\k<hashes>|\bb?"(?:\\[^]|[^"\\])*"|"(?:\\[^]|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'/,
                symbol: /'[a-z_]\w*/,
                meta: /#!?\[[^\]]*\]/,
                number,
                built_in: /\b[a-z_]\w*!(?!=)/,
            },
            keywords: words('as async await break const continue crate dyn else enum extern fn for if impl in let loop'
                + ' match mod move mut pub ref return self static struct super trait type union unsafe use where while'),
            literals: words('true false None Some Ok Err'),
            types: /^(?:[A-Z]\w*|[iu](?:8|16|32|64|128|size)|f32|f64|bool|char|str)$/,
            defines: words('fn'),
        },
        cpp: {
            tokens: { comment: cComment, string: doubleQuoted, symbol: singleQuoted, meta: /^[ \t]*#[ \t]*\w+/m, number },
            keywords: words('auto break case class const constexpr continue default do else enum extern for if inline'
                + ' namespace operator private public return sizeof static struct switch template typedef typename'
                + ' union using volatile while __global__ __device__ __host__ __shared__ __restrict__ __constant__'
                + ' __launch_bounds__'),
            literals: words('true false nullptr NULL'),
            types: /^(?:void|bool|char|int|long|short|unsigned|signed|float[24]?|double|size_t|u?int\d+_t|dim3|__\w+\d?)$/,
        },
        python: {
            tokens: {
                comment: hashComment,
                string: /"""[^]*?"""|'''[^]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/,
                meta: /@[\w.]+/,
                number,
            },
            keywords: words('and as assert async await break class continue def del elif else except finally for from'
                + ' global if import in is lambda nonlocal not or pass raise return try while with yield'),
            literals: words('True False None self'),
            types: /^[A-Z]\w*$/,
            defines: words('def class'),
        },
        bash: {
            tokens: {
                comment: /(?:^|[ \t])#[^\n]*/m,
                string: /"(?:\\[^]|[^"\\])*"|'[^']*'/,
                variable: /\$(?:\w+|\{[^}]*\})/,
            },
            keywords: words('if then else elif fi for in do done while case esac function export set'),
        },
    };
    const aliases = { rs: 'rust', c: 'cpp', cu: 'cpp', cuda: 'cpp', py: 'python', sh: 'bash', shell: 'bash' };

    // [start, end, class] of every token in the text, in order.
    function tokenize(text, language) {
        const kinds = Object.keys(language.tokens);
        const sources = kinds.map(kind => `(?<${kind}>${language.tokens[kind].source})`);
        const any = new RegExp([...sources, '(?<word>[A-Za-z_]\\w*)'].join('|'), 'gm');
        const found = [];
        let previous = '';
        for (const match of text.matchAll(any)) {
            let kind = kinds.find(kind => match.groups[kind] !== undefined);
            if (kind === undefined) {
                const word = match[0];
                kind = (language.defines || new Set()).has(previous) ? 'title'
                    : (language.keywords || new Set()).has(word) ? 'keyword'
                        : (language.literals || new Set()).has(word) ? 'literal'
                            : language.types && language.types.test(word) ? 'type' : undefined;
                previous = word;
            }
            if (kind !== undefined) {
                found.push([match.index, match.index + match[0].length, `hljs-${kind}`]);
            }
        }
        return found;
    }

    function highlightBlock(block) {
        const name = [...block.classList].map(c => c.replace(/^language-/, '')).find(c => languages[aliases[c] || c]);
        if (!name) {
            return;
        }
        const tokens = tokenize(block.textContent, languages[aliases[name] || name]);
        const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
        const nodes = [];
        while (walker.nextNode()) {
            nodes.push(walker.currentNode);
        }
        let offset = 0;
        let next = 0;
        for (const node of nodes) {
            const text = node.data;
            const end = offset + text.length;
            const parts = [];
            let at = offset;
            while (next < tokens.length && tokens[next][0] < end) {
                const [start, stop, className] = tokens[next];
                const from = Math.max(start, offset);
                const to = Math.min(stop, end);
                const span = document.createElement('span');
                span.className = className;
                span.textContent = text.slice(from - offset, to - offset);
                parts.push(text.slice(at - offset, from - offset), span);
                at = to;
                if (stop > end) {
                    break;
                }
                next += 1;
            }
            if (parts.length) {
                parts.push(text.slice(at - offset));
                node.replaceWith(...parts);
            }
            offset = end;
        }
    }

    return { configure() {}, highlightBlock };
})();
