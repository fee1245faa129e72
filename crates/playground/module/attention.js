export class Attention {
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        AttentionFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_attention_free(ptr, 0);
    }
    constructor(q, k, v, mask) {
        _assertClass(q, Matrix);
        _assertClass(k, Matrix);
        _assertClass(v, Matrix);
        _assertClass(mask, Mask);
        const ret = wasm.attention_new(q.__wbg_ptr, k.__wbg_ptr, v.__wbg_ptr, mask.__wbg_ptr);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        AttentionFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    get masked() {
        const ret = wasm.__wbg_get_attention_masked(this.__wbg_ptr);
        return Matrix.__wrap(ret);
    }
    get output() {
        const ret = wasm.__wbg_get_attention_output(this.__wbg_ptr);
        return Matrix.__wrap(ret);
    }
    get scores() {
        const ret = wasm.__wbg_get_attention_scores(this.__wbg_ptr);
        return Matrix.__wrap(ret);
    }
    get weights() {
        const ret = wasm.__wbg_get_attention_weights(this.__wbg_ptr);
        return Matrix.__wrap(ret);
    }
    set masked(arg0) {
        _assertClass(arg0, Matrix);
        var ptr0 = arg0.__destroy_into_raw();
        wasm.__wbg_set_attention_masked(this.__wbg_ptr, ptr0);
    }
    set output(arg0) {
        _assertClass(arg0, Matrix);
        var ptr0 = arg0.__destroy_into_raw();
        wasm.__wbg_set_attention_output(this.__wbg_ptr, ptr0);
    }
    set scores(arg0) {
        _assertClass(arg0, Matrix);
        var ptr0 = arg0.__destroy_into_raw();
        wasm.__wbg_set_attention_scores(this.__wbg_ptr, ptr0);
    }
    set weights(arg0) {
        _assertClass(arg0, Matrix);
        var ptr0 = arg0.__destroy_into_raw();
        wasm.__wbg_set_attention_weights(this.__wbg_ptr, ptr0);
    }
}
if (Symbol.dispose) Attention.prototype[Symbol.dispose] = Attention.prototype.free;

export class BankLoad {
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        BankLoadFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_bankload_free(ptr, 0);
    }
    get banks() {
        const ret = wasm.bankload_banks(this.__wbg_ptr);
        var v1 = getArrayU32FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    get clocks() {
        const ret = wasm.bankload_clocks(this.__wbg_ptr);
        return ret >>> 0;
    }
    constructor(rows, width, padding, swizzled, words) {
        const ret = wasm.bankload_new(rows, width, padding, swizzled, words);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        BankLoadFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
}
if (Symbol.dispose) BankLoad.prototype[Symbol.dispose] = BankLoad.prototype.free;

export class Layer {
    static __wrap(ptr) {
        const obj = Object.create(Layer.prototype);
        obj.__wbg_ptr = ptr;
        LayerFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        LayerFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_layer_free(ptr, 0);
    }
    static example() {
        const ret = wasm.layer_example();
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Layer.__wrap(ret[0]);
    }
    gradient(which) {
        const ret = wasm.layer_gradient(this.__wbg_ptr, which);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
    matrix(name, head) {
        const val2 = +head;
        const ptr0 = passStringToWasm0(name, wasm.__wbindgen_malloc, wasm.__wbindgen_realloc);
        const len0 = WASM_VECTOR_LEN;
        const ret = wasm.layer_matrix(this.__wbg_ptr, ptr0, len0, val2);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
    measured(which, row, column, epsilon) {
        const ret = wasm.layer_measured(this.__wbg_ptr, which, row, column, epsilon);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return ret[0];
    }
    constructor(x, n_heads, n_kv_heads, seed, factor, mask, dropout) {
        _assertClass(x, Matrix);
        _assertClass(mask, Mask);
        const ret = wasm.layer_new(x.__wbg_ptr, n_heads, n_kv_heads, seed, factor, mask.__wbg_ptr, dropout);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        LayerFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    get parameterNames() {
        const ret = wasm.layer_parameterNames(this.__wbg_ptr);
        var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    parameter(which) {
        const ret = wasm.layer_parameter(this.__wbg_ptr, which);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
    path(which) {
        const ret = wasm.layer_path(this.__wbg_ptr, which);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
    place(positions) {
        const ret = wasm.layer_place(this.__wbg_ptr, positions);
        if (ret[1]) {
            throw takeFromExternrefTable0(ret[0]);
        }
    }
}
if (Symbol.dispose) Layer.prototype[Symbol.dispose] = Layer.prototype.free;

export class Mask {
    static __wrap(ptr) {
        const obj = Object.create(Mask.prototype);
        obj.__wbg_ptr = ptr;
        MaskFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        MaskFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_mask_free(ptr, 0);
    }
    and(other) {
        _assertClass(other, Mask);
        const ret = wasm.mask_and(this.__wbg_ptr, other.__wbg_ptr);
        return Mask.__wrap(ret);
    }
    static causal() {
        const ret = wasm.mask_causal();
        return Mask.__wrap(ret);
    }
    static none() {
        const ret = wasm.mask_none();
        return Mask.__wrap(ret);
    }
    static padding(valid, tokens) {
        const ret = wasm.mask_padding(valid, tokens);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Mask.__wrap(ret[0]);
    }
    static window(width) {
        const ret = wasm.mask_window(width);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Mask.__wrap(ret[0]);
    }
}
if (Symbol.dispose) Mask.prototype[Symbol.dispose] = Mask.prototype.free;

export class Matrix {
    static __wrap(ptr) {
        const obj = Object.create(Matrix.prototype);
        obj.__wbg_ptr = ptr;
        MatrixFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        MatrixFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_matrix_free(ptr, 0);
    }
    get columns() {
        const ret = wasm.matrix_columns(this.__wbg_ptr);
        return ret >>> 0;
    }
    get entries() {
        const ret = wasm.matrix_entries(this.__wbg_ptr);
        var v1 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
        return v1;
    }
    constructor(rows, columns, entries) {
        const val2 = +rows;
        const val3 = +columns;
        const ptr0 = passArrayF64ToWasm0(entries, wasm.__wbindgen_malloc);
        const len0 = WASM_VECTOR_LEN;
        const ret = wasm.matrix_new(val2, val3, ptr0, len0);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        MatrixFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    get rows() {
        const ret = wasm.matrix_rows(this.__wbg_ptr);
        return ret >>> 0;
    }
}
if (Symbol.dispose) Matrix.prototype[Symbol.dispose] = Matrix.prototype.free;

export class OnlineSoftmax {
    static __wrap(ptr) {
        const obj = Object.create(OnlineSoftmax.prototype);
        obj.__wbg_ptr = ptr;
        OnlineSoftmaxFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        OnlineSoftmaxFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_onlinesoftmax_free(ptr, 0);
    }
    absorb(scores, values) {
        let ptr0, len0, ptr1, len1;
        try {
            ptr0 = passArrayF64ToWasm0(scores, wasm.__wbindgen_malloc);
            len0 = WASM_VECTOR_LEN;
            ptr1 = passArrayF64ToWasm0(values, wasm.__wbindgen_malloc);
            len1 = WASM_VECTOR_LEN;
        } catch (e) {
            if (ptr1) { wasm.__wbindgen_free(ptr1, len1 * 8, 8); }
            if (ptr0) { wasm.__wbindgen_free(ptr0, len0 * 8, 8); }
            throw e;
        }
        const ret = wasm.onlinesoftmax_absorb(this.__wbg_ptr, ptr0, len0, ptr1, len1);
        if (ret[1]) {
            throw takeFromExternrefTable0(ret[0]);
        }
    }
    get max() {
        const ret = wasm.onlinesoftmax_max(this.__wbg_ptr);
        return ret;
    }
    merge(other) {
        _assertClass(other, OnlineSoftmax);
        const ret = wasm.onlinesoftmax_merge(this.__wbg_ptr, other.__wbg_ptr);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return OnlineSoftmax.__wrap(ret[0]);
    }
    constructor() {
        const ret = wasm.onlinesoftmax_new();
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        OnlineSoftmaxFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    get output() {
        const ret = wasm.onlinesoftmax_output(this.__wbg_ptr);
        return ret;
    }
    get sum() {
        const ret = wasm.onlinesoftmax_sum(this.__wbg_ptr);
        return ret;
    }
    get values() {
        const ret = wasm.onlinesoftmax_values(this.__wbg_ptr);
        return ret;
    }
}
if (Symbol.dispose) OnlineSoftmax.prototype[Symbol.dispose] = OnlineSoftmax.prototype.free;

export class PlannedWork {
    static __wrap(ptr) {
        const obj = Object.create(PlannedWork.prototype);
        obj.__wbg_ptr = ptr;
        PlannedWorkFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        PlannedWorkFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_plannedwork_free(ptr, 0);
    }
    get consumer() {
        const ret = wasm.__wbg_get_plannedwork_consumer(this.__wbg_ptr);
        return ret >>> 0;
    }
    get from() {
        const ret = wasm.__wbg_get_plannedwork_from(this.__wbg_ptr);
        return ret >>> 0;
    }
    get tile() {
        const ret = wasm.__wbg_get_plannedwork_tile(this.__wbg_ptr);
        return ret >>> 0;
    }
    get to() {
        const ret = wasm.__wbg_get_plannedwork_to(this.__wbg_ptr);
        return ret >>> 0;
    }
    get work() {
        const ret = wasm.__wbg_get_plannedwork_work(this.__wbg_ptr);
        return ret >>> 0;
    }
    static busy(consumers, overlap, softmax) {
        const ret = wasm.plannedwork_busy(consumers, overlap, softmax);
        return ret;
    }
    static correction() {
        const ret = wasm.plannedwork_correction();
        return ret >>> 0;
    }
    static plan(consumers, overlap, softmax) {
        const ret = wasm.plannedwork_plan(consumers, overlap, softmax);
        var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    static softmaxBusy(softmax) {
        const ret = wasm.plannedwork_softmaxBusy(softmax);
        return ret;
    }
    set consumer(arg0) {
        wasm.__wbg_set_plannedwork_consumer(this.__wbg_ptr, arg0);
    }
    set from(arg0) {
        wasm.__wbg_set_plannedwork_from(this.__wbg_ptr, arg0);
    }
    set tile(arg0) {
        wasm.__wbg_set_plannedwork_tile(this.__wbg_ptr, arg0);
    }
    set to(arg0) {
        wasm.__wbg_set_plannedwork_to(this.__wbg_ptr, arg0);
    }
    set work(arg0) {
        wasm.__wbg_set_plannedwork_work(this.__wbg_ptr, arg0);
    }
}
if (Symbol.dispose) PlannedWork.prototype[Symbol.dispose] = PlannedWork.prototype.free;

export const Positions = Object.freeze({
    None: 0, "0": "None",
    Waves: 1, "1": "Waves",
    Angles: 2, "2": "Angles",
    Bias: 3, "3": "Bias",
});

export class RingWalk {
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        RingWalkFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_ringwalk_free(ptr, 0);
    }
    get balance() {
        const ret = wasm.ringwalk_balance(this.__wbg_ptr);
        return ret;
    }
    constructor(tokens, ranks, layout, mask) {
        _assertClass(mask, Mask);
        const ret = wasm.ringwalk_new(tokens, ranks, layout, mask.__wbg_ptr);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        RingWalkFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    pairs(rank, step) {
        const ret = wasm.ringwalk_pairs(this.__wbg_ptr, rank, step);
        return ret >>> 0;
    }
    rows(rank) {
        const ret = wasm.ringwalk_rows(this.__wbg_ptr, rank);
        var v1 = getArrayU32FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
}
if (Symbol.dispose) RingWalk.prototype[Symbol.dispose] = RingWalk.prototype.free;

export class RooflineStep {
    static __wrap(ptr) {
        const obj = Object.create(RooflineStep.prototype);
        obj.__wbg_ptr = ptr;
        RooflineStepFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        RooflineStepFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_rooflinestep_free(ptr, 0);
    }
    static all(tokens, width, bytes) {
        const ret = wasm.rooflinestep_all(tokens, width, bytes);
        if (ret[3]) {
            throw takeFromExternrefTable0(ret[2]);
        }
        var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    get intensity() {
        const ret = wasm.rooflinestep_intensity(this.__wbg_ptr);
        return ret;
    }
    get name() {
        let deferred1_0;
        let deferred1_1;
        try {
            const ret = wasm.rooflinestep_name(this.__wbg_ptr);
            deferred1_0 = ret[0];
            deferred1_1 = ret[1];
            return getStringFromWasm0(ret[0], ret[1]);
        } finally {
            wasm.__wbindgen_free(deferred1_0, deferred1_1, 1);
        }
    }
}
if (Symbol.dispose) RooflineStep.prototype[Symbol.dispose] = RooflineStep.prototype.free;

export class Sentence {
    static __wrap(ptr) {
        const obj = Object.create(Sentence.prototype);
        obj.__wbg_ptr = ptr;
        SentenceFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        SentenceFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_sentence_free(ptr, 0);
    }
    static city() {
        const ret = wasm.sentence_city();
        return Sentence.__wrap(ret);
    }
    static river() {
        const ret = wasm.sentence_river();
        return Sentence.__wrap(ret);
    }
    get tokens() {
        const ret = wasm.sentence_tokens(this.__wbg_ptr);
        var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    get x() {
        const ret = wasm.sentence_x(this.__wbg_ptr);
        return Matrix.__wrap(ret);
    }
}
if (Symbol.dispose) Sentence.prototype[Symbol.dispose] = Sentence.prototype.free;

export class TileWalk {
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        TileWalkFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_tilewalk_free(ptr, 0);
    }
    get keys() {
        const ret = wasm.tilewalk_keys(this.__wbg_ptr);
        var v1 = getArrayU32FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    moved(tiles) {
        const ret = wasm.tilewalk_moved(this.__wbg_ptr, tiles);
        return ret >>> 0;
    }
    constructor(tokens, width, capacity, queries, keys, mask) {
        _assertClass(mask, Mask);
        const ret = wasm.tilewalk_new(tokens, width, capacity, queries, keys, mask.__wbg_ptr);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        TileWalkFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
    get queries() {
        const ret = wasm.tilewalk_queries(this.__wbg_ptr);
        var v1 = getArrayU32FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    get totals() {
        const ret = wasm.tilewalk_totals(this.__wbg_ptr);
        var v1 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
        return v1;
    }
}
if (Symbol.dispose) TileWalk.prototype[Symbol.dispose] = TileWalk.prototype.free;

export class Writer {
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        WriterFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_writer_free(ptr, 0);
    }
    begin(text, off, seed) {
        const val3 = BigInt.asIntN(64, seed);
        let ptr0, len0, ptr1, len1;
        try {
            ptr0 = passStringToWasm0(text, wasm.__wbindgen_malloc, wasm.__wbindgen_realloc);
            len0 = WASM_VECTOR_LEN;
            ptr1 = passArray32ToWasm0(off, wasm.__wbindgen_malloc);
            len1 = WASM_VECTOR_LEN;
        } catch (e) {
            if (ptr1) { wasm.__wbindgen_free(ptr1, len1 * 4, 4); }
            if (ptr0) { wasm.__wbindgen_free(ptr0, len0 * 1, 1); }
            throw e;
        }
        const ret = wasm.writer_begin(this.__wbg_ptr, ptr0, len0, ptr1, len1, val3);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Written.__wrap(ret[0]);
    }
    constructor(bytes) {
        const ptr0 = passArray8ToWasm0(bytes, wasm.__wbindgen_malloc);
        const len0 = WASM_VECTOR_LEN;
        const ret = wasm.writer_new(ptr0, len0);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        this.__wbg_ptr = ret[0];
        WriterFinalization.register(this, this.__wbg_ptr, this);
        return this;
    }
}
if (Symbol.dispose) Writer.prototype[Symbol.dispose] = Writer.prototype.free;

export class Written {
    static __wrap(ptr) {
        const obj = Object.create(Written.prototype);
        obj.__wbg_ptr = ptr;
        WrittenFinalization.register(obj, obj.__wbg_ptr, obj);
        return obj;
    }
    __destroy_into_raw() {
        const ptr = this.__wbg_ptr;
        this.__wbg_ptr = 0;
        WrittenFinalization.unregister(this);
        return ptr;
    }
    free() {
        const ptr = this.__destroy_into_raw();
        wasm.__wbg_written_free(ptr, 0);
    }
    goOn(temperature) {
        const ret = wasm.written_goOn(this.__wbg_ptr, temperature);
        if (ret[1]) {
            throw takeFromExternrefTable0(ret[0]);
        }
    }
    keys(block) {
        const ret = wasm.written_keys(this.__wbg_ptr, block);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
    get nextCharacters() {
        const ret = wasm.written_nextCharacters(this.__wbg_ptr);
        var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
        wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
        return v1;
    }
    get nextProbabilities() {
        const ret = wasm.written_nextProbabilities(this.__wbg_ptr);
        var v1 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
        wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
        return v1;
    }
    get surprise() {
        const ret = wasm.written_surprise(this.__wbg_ptr);
        return ret;
    }
    get text() {
        let deferred1_0;
        let deferred1_1;
        try {
            const ret = wasm.written_text(this.__wbg_ptr);
            deferred1_0 = ret[0];
            deferred1_1 = ret[1];
            return getStringFromWasm0(ret[0], ret[1]);
        } finally {
            wasm.__wbindgen_free(deferred1_0, deferred1_1, 1);
        }
    }
    weights(block, head) {
        const ret = wasm.written_weights(this.__wbg_ptr, block, head);
        if (ret[2]) {
            throw takeFromExternrefTable0(ret[1]);
        }
        return Matrix.__wrap(ret[0]);
    }
}
if (Symbol.dispose) Written.prototype[Symbol.dispose] = Written.prototype.free;

export function dimensions() {
    const ret = wasm.dimensions();
    var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
    wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
    return v1;
}

export function embed(word) {
    const ptr0 = passStringToWasm0(word, wasm.__wbindgen_malloc, wasm.__wbindgen_realloc);
    const len0 = WASM_VECTOR_LEN;
    const ret = wasm.embed(ptr0, len0);
    var v2 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
    wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
    return v2;
}

export function measured_slope(epsilon, single) {
    const ret = wasm.measured_slope(epsilon, single);
    if (ret[2]) {
        throw takeFromExternrefTable0(ret[1]);
    }
    return ret[0];
}

export function project(x, w) {
    _assertClass(x, Matrix);
    _assertClass(w, Matrix);
    const ret = wasm.project(x.__wbg_ptr, w.__wbg_ptr);
    if (ret[2]) {
        throw takeFromExternrefTable0(ret[1]);
    }
    return Matrix.__wrap(ret[0]);
}

export function projections() {
    const ret = wasm.projections();
    var v1 = getArrayJsValueFromWasm0(ret[0], ret[1]);
    wasm.__wbindgen_free(ret[0], ret[1] * 4, 4);
    return v1;
}

export function random_products(keys, width, seed) {
    const ret = wasm.random_products(keys, width, seed);
    if (ret[3]) {
        throw takeFromExternrefTable0(ret[2]);
    }
    var v1 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
    wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
    return v1;
}

export function softmax(scores) {
    const ptr0 = passArrayF64ToWasm0(scores, wasm.__wbindgen_malloc);
    const len0 = WASM_VECTOR_LEN;
    const ret = wasm.softmax(ptr0, len0);
    if (ret[3]) {
        throw takeFromExternrefTable0(ret[2]);
    }
    var v2 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
    wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
    return v2;
}

export function softmax_jacobian(scores) {
    const ptr0 = passArrayF64ToWasm0(scores, wasm.__wbindgen_malloc);
    const len0 = WASM_VECTOR_LEN;
    const ret = wasm.softmax_jacobian(ptr0, len0);
    if (ret[2]) {
        throw takeFromExternrefTable0(ret[1]);
    }
    return Matrix.__wrap(ret[0]);
}

export function turned_row(position, pairs) {
    const ret = wasm.turned_row(position, pairs);
    if (ret[3]) {
        throw takeFromExternrefTable0(ret[2]);
    }
    var v1 = getArrayF64FromWasm0(ret[0], ret[1]).slice();
    wasm.__wbindgen_free(ret[0], ret[1] * 8, 8);
    return v1;
}
function __wbg_get_imports() {
    const import0 = {
        __proto__: null,
        __wbg_Error_208446807d0d1e30: function(arg0, arg1) {
            const ret = Error(getStringFromWasm0(arg0, arg1));
            return ret;
        },
        __wbg___wbindgen_throw_4c88d8bf264fd984: function(arg0, arg1) {
            throw new Error(getStringFromWasm0(arg0, arg1));
        },
        __wbg_matrix_new: function(arg0) {
            const ret = Matrix.__wrap(arg0);
            return ret;
        },
        __wbg_plannedwork_new: function(arg0) {
            const ret = PlannedWork.__wrap(arg0);
            return ret;
        },
        __wbg_rooflinestep_new: function(arg0) {
            const ret = RooflineStep.__wrap(arg0);
            return ret;
        },
        __wbindgen_generic_0000000000000001: function(arg0, arg1) {
            // Cast intrinsic for `Ref(String) -> Externref`.
            const ret = getStringFromWasm0(arg0, arg1);
            return ret;
        },
        __wbindgen_init_externref_table: function() {
            const table = wasm.__wbindgen_externrefs;
            table.set(0, undefined);
            table.set(1024, undefined);
            table.set(1025, null);
            table.set(1026, true);
            table.set(1027, false);
        },
    };
    return {
        __proto__: null,
        "./attention_bg.js": import0,
    };
}

const AttentionFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_attention_free(ptr, 1));
const BankLoadFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_bankload_free(ptr, 1));
const LayerFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_layer_free(ptr, 1));
const MaskFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_mask_free(ptr, 1));
const MatrixFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_matrix_free(ptr, 1));
const OnlineSoftmaxFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_onlinesoftmax_free(ptr, 1));
const PlannedWorkFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_plannedwork_free(ptr, 1));
const RingWalkFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_ringwalk_free(ptr, 1));
const RooflineStepFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_rooflinestep_free(ptr, 1));
const SentenceFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_sentence_free(ptr, 1));
const TileWalkFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_tilewalk_free(ptr, 1));
const WriterFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_writer_free(ptr, 1));
const WrittenFinalization = (typeof FinalizationRegistry === 'undefined')
    ? { register: () => {}, unregister: () => {} }
    : new FinalizationRegistry(ptr => wasm.__wbg_written_free(ptr, 1));

function _assertClass(instance, klass) {
    if (!(instance instanceof klass)) {
        throw new Error(`expected instance of ${klass.name}`);
    }
}

function getArrayF64FromWasm0(ptr, len) {
    ptr = ptr >>> 0;
    return getFloat64ArrayMemory0().subarray(ptr / 8, ptr / 8 + len);
}

function getArrayJsValueFromWasm0(ptr, len) {
    ptr = ptr >>> 0;
    const mem = getDataViewMemory0();
    const result = [];
    for (let i = ptr; i < ptr + 4 * len; i += 4) {
        result.push(wasm.__wbindgen_externrefs.get(mem.getUint32(i, true)));
    }
    wasm.__externref_drop_slice(ptr, len);
    return result;
}

function getArrayU32FromWasm0(ptr, len) {
    ptr = ptr >>> 0;
    return getUint32ArrayMemory0().subarray(ptr / 4, ptr / 4 + len);
}

let cachedDataViewMemory0 = null;
function getDataViewMemory0() {
    if (cachedDataViewMemory0 === null || cachedDataViewMemory0.buffer.detached === true || (cachedDataViewMemory0.buffer.detached === undefined && cachedDataViewMemory0.buffer !== wasm.memory.buffer)) {
        cachedDataViewMemory0 = new DataView(wasm.memory.buffer);
    }
    return cachedDataViewMemory0;
}

let cachedFloat64ArrayMemory0 = null;
function getFloat64ArrayMemory0() {
    if (cachedFloat64ArrayMemory0 === null || cachedFloat64ArrayMemory0.byteLength === 0) {
        cachedFloat64ArrayMemory0 = new Float64Array(wasm.memory.buffer);
    }
    return cachedFloat64ArrayMemory0;
}

function getStringFromWasm0(ptr, len) {
    ptr = ptr >>> 0;
    return decodeText(getUint8ArrayMemory0().subarray(ptr, ptr + len));
}

let cachedUint32ArrayMemory0 = null;
function getUint32ArrayMemory0() {
    if (cachedUint32ArrayMemory0 === null || cachedUint32ArrayMemory0.byteLength === 0) {
        cachedUint32ArrayMemory0 = new Uint32Array(wasm.memory.buffer);
    }
    return cachedUint32ArrayMemory0;
}

let cachedUint8ArrayMemory0 = null;
function getUint8ArrayMemory0() {
    if (cachedUint8ArrayMemory0 === null || cachedUint8ArrayMemory0.byteLength === 0) {
        cachedUint8ArrayMemory0 = new Uint8Array(wasm.memory.buffer);
    }
    return cachedUint8ArrayMemory0;
}

function passArray32ToWasm0(arg, malloc) {
    const ptr = malloc(arg.length * 4, 4) >>> 0;
    getUint32ArrayMemory0().set(arg, ptr / 4);
    WASM_VECTOR_LEN = arg.length;
    return ptr;
}

function passArray8ToWasm0(arg, malloc) {
    const ptr = malloc(arg.length * 1, 1) >>> 0;
    getUint8ArrayMemory0().set(arg, ptr / 1);
    WASM_VECTOR_LEN = arg.length;
    return ptr;
}

function passArrayF64ToWasm0(arg, malloc) {
    const ptr = malloc(arg.length * 8, 8) >>> 0;
    getFloat64ArrayMemory0().set(arg, ptr / 8);
    WASM_VECTOR_LEN = arg.length;
    return ptr;
}

function passStringToWasm0(arg, malloc, realloc) {
    if (realloc === undefined) {
        const buf = cachedTextEncoder.encode(arg);
        const ptr = malloc(buf.length, 1) >>> 0;
        getUint8ArrayMemory0().subarray(ptr, ptr + buf.length).set(buf);
        WASM_VECTOR_LEN = buf.length;
        return ptr;
    }

    let len = arg.length;
    let ptr = malloc(len, 1) >>> 0;

    const mem = getUint8ArrayMemory0();

    let offset = 0;

    for (; offset < len; offset++) {
        const code = arg.charCodeAt(offset);
        if (code > 0x7F) break;
        mem[ptr + offset] = code;
    }
    if (offset !== len) {
        if (offset !== 0) {
            arg = arg.slice(offset);
        }
        ptr = realloc(ptr, len, len = offset + arg.length * 3, 1) >>> 0;
        const view = getUint8ArrayMemory0().subarray(ptr + offset, ptr + len);
        const ret = cachedTextEncoder.encodeInto(arg, view);

        offset += ret.written;
        ptr = realloc(ptr, len, offset, 1) >>> 0;
    }

    WASM_VECTOR_LEN = offset;
    return ptr;
}

function takeFromExternrefTable0(idx) {
    const value = wasm.__wbindgen_externrefs.get(idx);
    wasm.__externref_table_dealloc(idx);
    return value;
}

let cachedTextDecoder = new TextDecoder('utf-8', { ignoreBOM: true });
cachedTextDecoder.decode();
const MAX_SAFARI_DECODE_BYTES = 2146435072;
let numBytesDecoded = 0;
function decodeText(bytes) {
    numBytesDecoded += bytes.length;
    if (numBytesDecoded >= MAX_SAFARI_DECODE_BYTES) {
        cachedTextDecoder = new TextDecoder('utf-8', { ignoreBOM: true });
        cachedTextDecoder.decode();
        numBytesDecoded = bytes.length;
    }
    return cachedTextDecoder.decode(bytes);
}

const cachedTextEncoder = new TextEncoder();

if (!('encodeInto' in cachedTextEncoder)) {
    cachedTextEncoder.encodeInto = function (arg, view) {
        const buf = cachedTextEncoder.encode(arg);
        view.set(buf);
        return {
            read: arg.length,
            written: buf.length
        };
    };
}

let WASM_VECTOR_LEN = 0;

let wasmModule, wasmInstance, wasm;
function __wbg_finalize_init(instance, module) {
    wasmInstance = instance;
    wasm = instance.exports;
    wasmModule = module;
    cachedDataViewMemory0 = null;
    cachedFloat64ArrayMemory0 = null;
    cachedUint32ArrayMemory0 = null;
    cachedUint8ArrayMemory0 = null;
    wasm.__wbindgen_start();
    return wasm;
}

async function __wbg_load(module, imports) {
    if (typeof Response === 'function' && module instanceof Response) {
        if (!module.ok) {
            throw new Error(`failed to fetch Wasm: ${module.status} ${module.statusText} fetching '${module.url}'`);
        }

        if (typeof WebAssembly.instantiateStreaming === 'function') {
            try {
                return await WebAssembly.instantiateStreaming(module, imports);
            } catch (e) {
                const validResponse = expectedResponseType(module.type);

                if (validResponse && module.headers.get('Content-Type') !== 'application/wasm') {
                    console.warn("`WebAssembly.instantiateStreaming` failed because your server does not serve Wasm with `application/wasm` MIME type. Falling back to `WebAssembly.instantiate` which is slower. Original error:\n", e);

                } else { throw e; }
            }
        }

        const bytes = await module.arrayBuffer();
        return await WebAssembly.instantiate(bytes, imports);
    } else {
        const instance = await WebAssembly.instantiate(module, imports);

        if (instance instanceof WebAssembly.Instance) {
            return { instance, module };
        } else {
            return instance;
        }
    }

    function expectedResponseType(type) {
        switch (type) {
            case 'basic': case 'cors': case 'default': return true;
        }
        return false;
    }
}

function initSync(module) {
    if (wasm !== undefined) return wasm;


    if (module !== undefined) {
        if (Object.getPrototypeOf(module) === Object.prototype) {
            ({module} = module)
        } else {
            console.warn('using deprecated parameters for `initSync()`; pass a single object instead')
        }
    }

    const imports = __wbg_get_imports();
    if (!(module instanceof WebAssembly.Module)) {
        module = new WebAssembly.Module(module);
    }
    const instance = new WebAssembly.Instance(module, imports);
    return __wbg_finalize_init(instance, module);
}

let __wbg_init_promise;
async function __wbg_init(module_or_path) {
    if (wasm !== undefined) return wasm;
    if (__wbg_init_promise === undefined) {
        __wbg_init_promise = __wbg_init_once(module_or_path);
        __wbg_init_promise.catch(() => { __wbg_init_promise = undefined; });
    }
    return __wbg_init_promise;
}

async function __wbg_init_once(module_or_path) {

    if (module_or_path !== undefined) {
        if (Object.getPrototypeOf(module_or_path) === Object.prototype) {
            ({module_or_path} = module_or_path)
        } else {
            console.warn('using deprecated parameters for the initialization function; pass a single object instead')
        }
    }

    if (module_or_path === undefined) {
        module_or_path = new URL('attention_bg.wasm', import.meta.url);
    }
    const imports = __wbg_get_imports();

    if (typeof module_or_path === 'string' || (typeof Request === 'function' && module_or_path instanceof Request) || (typeof URL === 'function' && module_or_path instanceof URL)) {
        module_or_path = fetch(module_or_path);
    }

    const { instance, module } = await __wbg_load(await module_or_path, imports);

    return __wbg_finalize_init(instance, module);
}

export { initSync, __wbg_init as default };
