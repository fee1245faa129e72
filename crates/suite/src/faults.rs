//! The faults, what to say to the person who has one, and a public thread of somebody who had it.

macro_rules! faults {
    ($($(#[$_:meta])* $fault:ident $name:literal $number:literal $words:literal $source:expr,)*) => {
        /// A fault that people make in attention.
        ///
        /// ```
        /// use suite::Fault;
        ///
        /// let fault = Fault::named("causal-top-left").unwrap();
        /// assert_eq!((fault, fault.number()), (Fault::CausalTopLeft, 3));
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $words] $fault,)*
        }

        impl Fault {
            /// Every fault, in the order of their numbers.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// Returns the name in the suite's files.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name,)* }
            }

            /// Returns the number in the book's list of twenty faults, which several may share.
            pub fn number(self) -> u64 {
                match self { $(Fault::$fault => $number,)* }
            }

            /// Returns what is wrong, and what is right.
            pub fn words(self) -> &'static str {
                match self { $(Fault::$fault => $words,)* }
            }

            /// Returns the part behind `https://github.com/` of the address of a public thread about it, if one is known.
            pub fn source(self) -> Option<&'static str> {
                match self { $(Fault::$fault => $source,)* }
            }

            /// Returns the fault with this name.
            pub fn named(name: &str) -> Option<Self> {
                Fault::ALL.iter().copied().find(|fault| fault.name() == name)
            }
        }
    };
}

faults! {
    MaskInverted "mask-inverted" 1
    "The mask is read the wrong way round: true hides a key here. True means that the query may see it."
    Some("rasbt/LLMs-from-scratch/issues/1061"),

    CausalStrict "causal-strict" 1
    "The causal mask hides the diagonal, too. A query sees its own key: j ≤ i, and not j < i."
    Some("pytorch/pytorch/issues/143287"),

    WindowOneWide "window-one-wide" 2
    "The window has one key too many. A window of w holds the query's own key and the w − 1 before it."
    Some("huggingface/transformers/issues/39408"),

    WindowOneNarrow "window-one-narrow" 2
    "The window has one key too few. A window of w holds the query's own key and the w − 1 before it."
    Some("lightseekorg/tokenspeed/pull/578"),

    CausalTopLeft "causal-top-left" 3
    "The causal mask starts in the top left corner. With a cache it belongs in the bottom right: query i sees keys up to i + n_k − n_q."
    Some("pytorch/pytorch/issues/108108"),

    CausalForgottenWithCache "causal-forgotten-with-cache" 3
    "The causal mask is left out where there are more keys than queries. Several new tokens after a cache still may not see one another's future."
    Some("Mikyx-1/TinyLLM/pull/18"),

    EmptyRowNan "empty-row-nan" 4
    "A query that may see nothing gets NaN, since −∞ − (−∞) is NaN. Its output is 0 and its log-sum-exp is −∞."
    Some("pytorch/pytorch/issues/103963"),

    EmptyRowMean "empty-row-mean" 4
    "A query that may see nothing gets the mean of all values, because hidden scores are −10⁹. Its output is 0 and its log-sum-exp is −∞."
    Some("NVIDIA/apex/issues/1390"),

    MaskMinus10000 "mask-minus-10000" 5
    "Hidden scores are set to −10,000, and a score that may be seen can be lower. Hide with −∞."
    Some("TransformerLensOrg/TransformerLens/issues/318"),

    MaskZeroScores "mask-zero-scores" 5
    "The mask multiplies the scores, so a hidden key keeps a score of 0 and a weight of e⁰. Hide with −∞ before softmax."
    Some("Shujun-He/RibonanzaNet/issues/5"),

    MaskAfterSoftmax "mask-after-softmax" 5
    "The mask is applied after softmax, so the weights that are left don't sum to 1. Hide with −∞ before softmax."
    Some("lucidrains/memory-compressed-attention/issues/2"),

    HiddenNan "hidden-nan" 6
    "A NaN behind the mask reaches the output, since 0 · NaN is NaN. Values with a weight of 0 must not be read."
    Some("pytorch/pytorch/issues/101967"),

    MaskAdded "mask-added" 6
    "−∞ is added to hidden scores, and NaN + (−∞) is NaN. Overwrite hidden scores, as torch.where does."
    Some("deepbeepmeep/Wan2GP/pull/1628"),

    NanToZero "nan-to-zero" 6
    "NaN in the output is replaced by 0. That hides a NaN which a query does see, so an error passes as a result."
    Some("microsoft/unilm/issues/1642"),

    SoftmaxOverQueries "softmax-over-queries" 7
    "Softmax runs over the queries. The weights of each query sum to 1 over the keys, the last axis of the scores."
    Some("labmlai/annotated_deep_learning_paper_implementations/issues/146"),

    ScaleOfTheModel "scale-of-the-model" 8
    "Scores are divided by √d_model. The d of 1/√d is the width of one head."
    Some("lucidrains/vit-pytorch/issues/65"),

    ScaleMissing "scale-missing" 8
    "Scores aren't divided by √d, the root of the width of a head."
    Some("mlc-ai/mlc-llm/pull/3426"),

    ScaleIgnored "scale-ignored" 8
    "The scale that is given is ignored, and scores are divided by √d as if there were none."
    Some("lucidrains/x-transformers/pull/244"),

    HeadsMergedWithoutTranspose "heads-merged-without-transpose" 9
    "Outputs of the shape (heads, n, d) are reshaped to (n, heads · d) at once, which mixes tokens. Transpose to (n, heads, d) first."
    Some("jsbaan/transformer-from-scratch/pull/6"),

    HeadsSplitWithoutTranspose "heads-split-without-transpose" 9
    "Projections of the shape (n, heads · d) are reshaped to (heads, n, d) at once, which mixes tokens. Reshape to (n, heads, d), then transpose."
    Some("hyunwoongko/transformer/issues/15"),

    DropoutInEvaluation "dropout-in-evaluation" 10
    "Weights are dropped in evaluation, too. Outside of training p is 0."
    Some("pytorch/pytorch/issues/124464"),

    DropoutNotScaled "dropout-not-scaled" 10
    "The weights that dropout leaves aren't divided by 1 − p, so the output is too small on average."
    Some("Dao-AILab/flash-attention/issues/93"),

    PositionOfTheChunk "position-of-the-chunk" 11
    "Positions start again at 0 in each chunk. A token's position counts all tokens before it, those of the cache included."
    Some("Blaizzy/mlx-vlm/issues/1983"),

    WindowCutTooEarly "window-cut-too-early" 12
    "The cache is cut to the window before the new chunk attends, so the chunk's first queries miss keys. Attend first, or keep w − 1 keys beside the chunk."
    Some("pytorch/executorch/pull/20346"),

    WindowForgottenWithCache "window-forgotten-with-cache" 12
    "The window holds for the first chunk only, and later tokens see the whole cache. It holds for every query."
    Some("karpathy/nanochat/issues/452"),

    RotaryAlwaysHalves "rotary-always-halves" 13
    "Columns t and t + d/2 are turned together where neighbours are asked for. The weights decide which pairs are right."
    Some("huggingface/transformers/issues/25199"),

    RotaryAlwaysNeighbours "rotary-always-neighbours" 13
    "Columns 2t and 2t + 1 are turned together where halves are asked for. The weights decide which pairs are right."
    Some("Dao-AILab/flash-attention/issues/288"),

    PositionInHalf "position-in-half" 14
    "Positions are rounded to bf16, which has no odd number above 256. Compute angles in f32 at least."
    Some("EleutherAI/gpt-neox/pull/1016"),

    HeadsInterleaved "heads-interleaved" 15
    "Query head h reads key head h mod kv_heads. Heads of a group are neighbours: it reads ⌊h · kv_heads / heads⌋."
    Some("onnx/onnx/pull/7274"),

    GroupGradientsOverwritten "group-gradients-overwritten" 15
    "The gradient of shared keys and values is that of the group's last head. It is the sum over all heads that read them."
    Some("marin-community/levanter/pull/449"),

    AlibiPlainFormula "alibi-plain-formula" 16
    "The slopes are 2^(−8(h + 1)/heads) for any number of heads. If that isn't a power of two, the paper's program takes the slopes of the next smaller power, then every other one of twice that power."
    Some("ofirpress/attention_with_linear_biases/issues/17"),

    AlibiFromOne "alibi-from-one" 16
    "The first slope is 1, because heads are counted from 0 in the exponent. It is 2^(−8(h + 1)/heads)."
    Some("paiml/aprender/pull/2143"),

    AlibiAdded "alibi-added" 16
    "The slope times the distance is added to scores, so far keys gain. It is subtracted."
    Some("meta-pytorch/attention-gym/pull/86"),

    AlibiTopLeft "alibi-top-left" 16
    "Distances are i − j with a cache, too. Query i stands at the position i + n_k − n_q."
    Some("keras-team/keras-hub/pull/2977"),

    GradientWithoutD "gradient-without-d" 17
    "The gradient of softmax lacks its sum: dS = P ∘ (dP − D), where D is each row's sum of P ∘ dP."
    Some("deeplearning4j/libnd4j/issues/440"),

    GradientScaleTwice "gradient-scale-twice" 17
    "The gradients of queries and keys are multiplied by the scale twice. Once is right."
    Some("HKUSTDial/flash-sparse-attention/pull/203"),

    GradientScaleMissing "gradient-scale-missing" 17
    "The gradients of queries and keys aren't multiplied by the scale. Once is right."
    None,

    MergeMean "merge-mean" 18
    "Partial outputs are averaged. Weigh each by e^(its log-sum-exp), and divide by the sum of these."
    None,

    MergeEmptyNan "merge-empty-nan" 18
    "Where no part has seen a key the result is NaN, since −∞ − (−∞) is NaN. It is 0, with a log-sum-exp of −∞."
    Some("flashinfer-ai/flashinfer/issues/4051"),

    MergeWithoutMaximum "merge-without-maximum" 18
    "e^(log-sum-exp) overflows. Subtract the largest log-sum-exp of all parts first."
    Some("zhuzilin/ring-flash-attention/pull/30"),

    TileNotRescaled "tile-not-rescaled" 18
    "A later tile has a larger score, and the sums of earlier tiles aren't corrected by e^(old maximum − new maximum)."
    Some("ROCm/rocm-libraries/pull/6498"),

    HiddenTileNan "hidden-tile-nan" 18
    "A row's first tile is hidden, and −∞ − (−∞) makes the whole row NaN, though later keys may be seen. Here a tile has four keys. Subtract 0 while the maximum is −∞."
    Some("vllm-project/vllm/issues/48364"),

    HiddenTileMaximum "hidden-tile-maximum" 18
    "A row's first tile is hidden, and the 0 that stands in for its maximum stays. Later scores far below 0 then underflow. Keep −∞ as the maximum."
    Some("Dao-AILab/flash-attention/issues/2082"),

    TilePaddingCounted "tile-padding-counted" 18
    "The last tile is filled up with keys of zeros, and they count in the sum. Here a tile has four keys. Hide what is beyond n_k."
    Some("flashinfer-ai/flashinfer/pull/5090"),

    ScoresOverflowHalf "scores-overflow-half" 19
    "The products of queries and keys are beyond 65,504, which f16 can't hold. Scale the queries first, and keep scores in f32."
    Some("ultralytics/ultralytics/pull/24990"),

    SoftmaxWithoutMaximum "softmax-without-maximum" 19
    "The exponential of a large score overflows. Subtract the row's maximum first."
    Some("pytorch/executorch/pull/18407"),

    LinearDenominatorOfAll "linear-denominator-of-all" 20
    "The denominator of causal linear attention sums over all keys. Like the numerator it sums over those up to the query."
    Some("fla-org/flash-linear-attention/pull/594"),

    LinearWithoutDenominator "linear-without-denominator" 20
    "Linear attention isn't divided by the sum of its weights."
    Some("lucidrains/performer-pytorch/issues/9"),
}

/// What the faults of each number are about, from 1 on.
pub const GROUPS: [&str; 20] = [
    "a mask inverted, or its diagonal hidden",
    "the width of a window",
    "the corner of a causal mask",
    "a query that may see nothing",
    "a finite number in place of −∞",
    "NaN in what is hidden",
    "softmax over the wrong axis",
    "the scale",
    "heads without a transpose",
    "dropout",
    "the position while decoding",
    "a window together with a cache",
    "the pairs of rotary positions",
    "rotary angles in 16 bits",
    "heads that share keys and values",
    "ALiBi's slopes",
    "the gradient of softmax",
    "merging partial results",
    "overflow",
    "linear attention's denominator",
];
