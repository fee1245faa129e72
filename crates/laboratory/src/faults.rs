//! The one list of planted faults: what to say to the person who has one, and a public thread of somebody who had it.
//!
//! Those with a number are planted by the crate `suite`, some also by [`Patient`](crate::Patient) and in trainings of the book. The others
//! are planted by `Patient` alone.

macro_rules! faults {
    ($($($number:literal)? $fault:ident $name:literal $words:literal $($source:literal)?,)*) => {
        /// A fault that people make in attention.
        ///
        /// ```
        /// use laboratory::Fault;
        ///
        /// assert_eq!(Fault::CausalTopLeft.name(), "causal-top-left");
        /// assert_eq!(Fault::CausalTopLeft.number(), Some(3));
        /// assert_eq!(Fault::DeadHead.number(), None);
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $words] $fault,)*
        }

        impl Fault {
            /// Every fault: those of the book's list in the order of their numbers, then the others.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// Returns the name, which is that in the suite's files.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name,)* }
            }

            /// Returns the number in the book's list, which several may share, if it is in it.
            pub fn number(self) -> Option<u64> {
                let number: &[u64] = match self { $(Fault::$fault => &[$($number)?],)* };
                number.first().copied()
            }

            /// Returns what is wrong, and what is right.
            pub fn words(self) -> &'static str {
                match self { $(Fault::$fault => $words,)* }
            }

            /// Returns the part behind `https://github.com/` of the address of a public thread about it, if one is known.
            pub fn source(self) -> Option<&'static str> {
                let source: &[&str] = match self { $(Fault::$fault => &[$($source)?],)* };
                source.first().copied()
            }
        }
    };
}

faults! {
    1 MaskInverted "mask-inverted"
    "The mask is read the wrong way round: true hides a key here. True means that the query may see it."
    "rasbt/LLMs-from-scratch/issues/1061",

    1 CausalStrict "causal-strict"
    "The causal mask hides the diagonal, too. A query sees its own key: j ≤ i, and not j < i."
    "pytorch/pytorch/issues/143287",

    1 CausalIgnored "causal-ignored"
    "The causal mask is left out, so a query sees what comes after it. Query i sees keys up to i + n_k − n_q.",

    1 MaskIgnored "mask-ignored"
    "The mask that is given isn't applied, so a query sees keys that it hides."
    "pytorch/pytorch/issues/122753",

    1 MaskTransposed "mask-transposed"
    "The mask is read with its rows for keys, and its columns for queries. Row i of the mask says what query i sees."
    "axelspringer/ForwardTacotron/pull/22",

    2 WindowOneWide "window-one-wide"
    "The window has one key too many. A window of w holds the query's own key and the w − 1 before it."
    "huggingface/transformers/issues/39408",

    2 WindowOneNarrow "window-one-narrow"
    "The window has one key too few. A window of w holds the query's own key and the w − 1 before it."
    "lightseekorg/tokenspeed/pull/578",

    3 CausalTopLeft "causal-top-left"
    "The causal mask starts in the top left corner. With a cache it belongs in the bottom right: query i sees keys up to i + n_k − n_q."
    "pytorch/pytorch/issues/108108",

    3 CausalForgottenWithCache "causal-forgotten-with-cache"
    "The causal mask is left out where there are more keys than queries. Several new tokens after a cache still may not see one another's future."
    "Mikyx-1/TinyLLM/pull/18",

    4 EmptyRowNan "empty-row-nan"
    "A query that may see nothing gets NaN, since −∞ − (−∞) is NaN. Its output is 0 and its log-sum-exp is −∞."
    "pytorch/pytorch/issues/103963",

    4 EmptyRowMean "empty-row-mean"
    "A query that may see nothing gets the mean of all values, because hidden scores are −10⁹. Its output is 0 and its log-sum-exp is −∞."
    "NVIDIA/apex/issues/1390",

    5 MaskMinus10000 "mask-minus-10000"
    "Hidden scores are set to −10,000, and a score that may be seen can be lower. Hide with −∞."
    "TransformerLensOrg/TransformerLens/issues/318",

    5 MaskZeroScores "mask-zero-scores"
    "The mask multiplies the scores, so a hidden key keeps a score of 0 and a weight of e⁰. Hide with −∞ before softmax."
    "Shujun-He/RibonanzaNet/issues/5",

    5 MaskAfterSoftmax "mask-after-softmax"
    "The mask is applied after softmax, so the weights that are left don't sum to 1. Hide with −∞ before softmax."
    "lucidrains/memory-compressed-attention/issues/2",

    6 HiddenNan "hidden-nan"
    "A NaN behind the mask reaches the output, since 0 · NaN is NaN. What is hidden must not count."
    "pytorch/pytorch/issues/101967",

    6 MaskAdded "mask-added"
    "−∞ is added to hidden scores, and NaN + (−∞) is NaN. Overwrite hidden scores, as torch.where does."
    "deepbeepmeep/Wan2GP/pull/1628",

    6 NanToZero "nan-to-zero"
    "NaN in the output is replaced by 0. That hides a NaN which a query does see, so an error passes as a result."
    "microsoft/unilm/issues/1642",

    7 SoftmaxOverQueries "softmax-over-queries"
    "Softmax runs over the queries. The weights of each query sum to 1 over the keys, the last axis of the scores."
    "labmlai/annotated_deep_learning_paper_implementations/issues/146",

    7 SoftmaxOverHeads "softmax-over-heads"
    "Softmax runs over the heads, the first axis of the scores. The weights of each query sum to 1 over the keys, the last axis."
    "jadore801120/attention-is-all-you-need-pytorch/issues/52",

    8 ScaleOfTheModel "scale-of-the-model"
    "Scores are divided by √d_model. The d of 1/√d is the width of one head."
    "lucidrains/vit-pytorch/issues/65",

    8 ScaleWithoutRoot "scale-without-root"
    "Scores are divided by d, the width of a head, and not by its root.",

    8 ScaleMissing "scale-missing"
    "Scores aren't divided by √d, the root of the width of a head."
    "mlc-ai/mlc-llm/pull/3426",

    8 ScaleIgnored "scale-ignored"
    "The scale that is given is ignored, and scores are divided by √d as if there were none."
    "lucidrains/x-transformers/pull/244",

    9 HeadsMergedWithoutTranspose "heads-merged-without-transpose"
    "Outputs of the shape (heads, n, d) are reshaped to (n, heads · d) at once, which mixes tokens. Transpose to (n, heads, d) first."
    "jsbaan/transformer-from-scratch/pull/6",

    9 HeadsSplitWithoutTranspose "heads-split-without-transpose"
    "Projections of the shape (n, heads · d) are reshaped to (heads, n, d) at once, which mixes tokens. Reshape to (n, heads, d), then transpose."
    "hyunwoongko/transformer/issues/15",

    10 DropoutInEvaluation "dropout-in-evaluation"
    "Weights are dropped in evaluation, too. Outside of training p is 0."
    "pytorch/pytorch/issues/124464",

    10 DropoutNotScaled "dropout-not-scaled"
    "The weights that dropout leaves aren't divided by 1 − p, so the output is too small on average."
    "Dao-AILab/flash-attention/issues/93",

    10 DropoutKeepsP "dropout-keeps-p"
    "Weights are kept with the probability p, and divided by p. They are dropped with the probability p: the mean of the output is the same, and its spread isn't."
    "google-research/electra/pull/61",

    10 DropoutOnOutput "dropout-on-output"
    "Dropout acts on the output and not on the weights. Each number of the output is then dropped as a whole.",

    10 DropoutOnScores "dropout-on-scores"
    "Dropout acts on the scores, before softmax. A score of 0 still has a weight of e⁰, and the weights that are left aren't divided by 1 − p.",

    10 DropoutOnce "dropout-once"
    "One draw of dropout serves all queries and heads. Each weight has its own."
    "NVIDIA/TransformerEngine/pull/227",

    11 PositionOfTheChunk "position-of-the-chunk"
    "Positions start again at 0 in each chunk. A token's position counts all tokens before it, those of the cache included."
    "Blaizzy/mlx-vlm/issues/1983",

    11 KeysRotatedAgain "keys-rotated-again"
    "All keys of the cache are rotated at each step, though they were rotated when they came. Rotate a key once."
    "NeuraLegion/shainet/pull/110",

    11 PositionCountsPadding "position-counts-padding"
    "After a padded prompt, positions are those of the cache, padding included, though the prompt's began at its first real token. Count from there for every token."
    "unslothai/unsloth/pull/3803",

    12 WindowCutTooEarly "window-cut-too-early"
    "The cache is cut to the window before the new chunk attends, so the chunk's first queries miss keys. Attend first, or keep w − 1 keys beside the chunk."
    "pytorch/executorch/pull/20346",

    12 WindowForgottenWithCache "window-forgotten-with-cache"
    "The window holds for the first chunk only, and later tokens see the whole cache. It holds for every query."
    "karpathy/nanochat/issues/452",

    13 RotaryAlwaysHalves "rotary-always-halves"
    "Columns t and t + d/2 are turned together where neighbours are asked for. The weights decide which pairs are right."
    "huggingface/transformers/issues/25199",

    13 RotaryAlwaysNeighbours "rotary-always-neighbours"
    "Columns 2t and 2t + 1 are turned together where halves are asked for. The weights decide which pairs are right."
    "Dao-AILab/flash-attention/issues/288",

    14 PositionInHalf "position-in-half"
    "Positions are rounded to bf16, which has no odd number above 256. Compute angles in f32 at least."
    "EleutherAI/gpt-neox/pull/1016",

    14 AnglesInSingle "angles-in-single"
    "Rotary angles are rounded to f32. At the position of a million that is an error of a thousandth. Compute angles in f64."
    "kekzl/imp/pull/1325",

    15 HeadsInterleaved "heads-interleaved"
    "Query head h reads key head h mod kv_heads. Heads of a group are neighbours: it reads ⌊h · kv_heads / heads⌋."
    "onnx/onnx/pull/7274",

    15 GroupGradientsOverwritten "group-gradients-overwritten"
    "The gradient of shared keys and values is that of the group's last head. It is the sum over all heads that read them."
    "marin-community/levanter/pull/449",

    15 GroupGradientsMean "group-gradients-mean"
    "The gradient of shared keys and values is the mean over the heads that read them. It is the sum.",

    16 AlibiPlainFormula "alibi-plain-formula"
    "The slopes are 2^(−8(h + 1)/heads) for any number of heads. If that isn't a power of two, the paper's program takes the slopes of the next smaller power, then every other one of twice that power."
    "ofirpress/attention_with_linear_biases/issues/17",

    16 AlibiFromOne "alibi-from-one"
    "The first slope is 1, because heads are counted from 0 in the exponent. It is 2^(−8(h + 1)/heads)."
    "paiml/aprender/pull/2143",

    16 AlibiAdded "alibi-added"
    "The slope times the distance is added to scores, so far keys gain. It is subtracted."
    "meta-pytorch/attention-gym/pull/86",

    16 AlibiTopLeft "alibi-top-left"
    "Distances are i − j with a cache, too. Query i stands at the position i + n_k − n_q."
    "keras-team/keras-hub/pull/2977",

    16 AlibiSigned "alibi-signed"
    "The slope is multiplied by i − j and not by the distance |i − j|, so without a causal mask keys after the query gain."
    "lucidrains/x-transformers/pull/88",

    17 GradientWithoutD "gradient-without-d"
    "The gradient of softmax lacks its sum: dS = P ∘ (dP − D), where D is each row's sum of P ∘ dP."
    "deeplearning4j/libnd4j/issues/440",

    17 GradientScaleTwice "gradient-scale-twice"
    "The gradients of queries and keys are multiplied by the scale twice. Once is right."
    "HKUSTDial/flash-sparse-attention/pull/203",

    17 GradientScaleMissing "gradient-scale-missing"
    "The gradients of queries and keys aren't multiplied by the scale. Once is right.",

    18 MergeMean "merge-mean"
    "Partial outputs are averaged. Weigh each by e^(its log-sum-exp), and divide by the sum of these.",

    18 MergeEmptyNan "merge-empty-nan"
    "Where no part has seen a key the result is NaN, since −∞ − (−∞) is NaN. It is 0, with a log-sum-exp of −∞."
    "flashinfer-ai/flashinfer/issues/4051",

    18 MergeWithoutMaximum "merge-without-maximum"
    "e^(log-sum-exp) overflows. Subtract the largest log-sum-exp of all parts first."
    "zhuzilin/ring-flash-attention/pull/30",

    18 LogSumExpInBase2 "log-sum-exp-in-base-2"
    "The log-sum-exp is a logarithm in base 2, which is 1.44 times as large as the natural one. Multiply by ln 2 before it leaves."
    "lightseekorg/tokenspeed/pull/571",

    18 TileNotRescaled "tile-not-rescaled"
    "A later tile has a larger score, and the sums of earlier tiles aren't corrected by e^(old maximum − new maximum)."
    "ROCm/rocm-libraries/pull/6498",

    18 HiddenTileNan "hidden-tile-nan"
    "A row's first tile is hidden, and −∞ − (−∞) makes the whole row NaN, though later keys may be seen. Here a tile has four keys. Subtract 0 while the maximum is −∞."
    "vllm-project/vllm/issues/48364",

    18 HiddenTileMaximum "hidden-tile-maximum"
    "A row's first tile is hidden, and the 0 that stands in for its maximum stays. Later scores far below 0 then underflow. Keep −∞ as the maximum."
    "Dao-AILab/flash-attention/issues/2082",

    18 TilePaddingCounted "tile-padding-counted"
    "The last tile is filled up with keys of zeros, and they count in the sum. Here a tile has four keys. Hide what is beyond n_k."
    "flashinfer-ai/flashinfer/pull/5090",

    19 ScoresOverflowHalf "scores-overflow-half"
    "The products of queries and keys are beyond 65,504, which f16 can't hold. Scale the queries first, and keep scores in f32."
    "ultralytics/ultralytics/pull/24990",

    19 SoftmaxWithoutMaximum "softmax-without-maximum"
    "The exponential of a large score overflows. Subtract the row's maximum first."
    "pytorch/executorch/pull/18407",

    19 MaximumOfAllRows "maximum-of-all-rows"
    "The maximum of all scores is subtracted, those of other queries and heads included, so a row far below it underflows. Subtract each row's own.",

    20 LinearDenominatorOfAll "linear-denominator-of-all"
    "The denominator of causal linear attention sums over all keys. Like the numerator it sums over those up to the query."
    "fla-org/flash-linear-attention/pull/594",

    20 LinearWithoutDenominator "linear-without-denominator"
    "Linear attention isn't divided by the sum of its weights."
    "lucidrains/performer-pytorch/issues/9",

    21 LatentScaleOfContent "latent-scale-of-content"
    "Scores of latent attention are divided by the root of the width without the rotary part. It is that of the whole head, √(d_nope + d_rope).",

    21 LatentScaleAbsorbed "latent-scale-absorbed"
    "Scores of latent attention are divided by the root of the latent's width. Absorbing a matrix into the query doesn't change the scale, 1/√(d_nope + d_rope)."
    "ollama/ollama/pull/13893",

    21 LatentAbsorbedUntransposed "latent-absorbed-untransposed"
    "The query is multiplied by W_UK and not by its transpose, which shapes allow where d_nope is the width of the latent. q · (c W_UK)ᵀ = (q W_UKᵀ) · cᵀ.",

    21 LatentRotatesAll "latent-rotates-all"
    "The whole head is rotated. Only the last d_rope columns are, so that W_UK can be absorbed into the query.",

    21 LatentRotaryKeyOfOneHead "latent-rotary-key-of-one-head"
    "The rotary key counts in the first head only. All heads share it.",

    22 BitsBySplit "bits-by-split"
    "The keys are split into parts by the number of queries in the call, so the order of a row's sums depends on its company. Fix the size of a part."
    "Dao-AILab/flash-attention/issues/1897",

    22 BitsByTile "bits-by-tile"
    "The number of keys in a tile depends on the number of queries, so a query alone and the same query among others add up in another order.",

    22 BitsByPlace "bits-by-place"
    "The sum over keys starts at another key for each place in the batch, so a sequence gets other bits in another place.",

    22 BitsByRun "bits-by-run"
    "Partial sums are added in the order in which they are ready, so the same call gives other bits the next time.",

    23 SoftcapIgnored "softcap-ignored"
    "The soft cap isn't applied. Scores are c · tanh(score / c)."
    "sgl-project/sglang/issues/33915",

    23 SoftcapAfterMask "softcap-after-mask"
    "The soft cap is applied after the mask, so a hidden score is −c and not −∞, and the key is seen a little. Cap first, then hide."
    "onnx/onnx/issues/7865",

    23 SoftcapTimesScore "softcap-times-score"
    "The tanh is multiplied by the score and not by the cap, which caps nothing. Scores are c · tanh(score / c)."
    "Dao-AILab/flash-attention/issues/2396",

    23 SoftcapGradientMissing "softcap-gradient-missing"
    "The gradient doesn't pass through the soft cap. The gradient of a score is multiplied by 1 − tanh²(score / c).",

    OffByOneMask "off-by-one-mask"
    "Every query sees what the next one may see. Row i of the mask says what query i sees.",

    ForgottenPadding "forgotten-padding"
    "The layer makes a causal mask of its own and does not look at the one it is given, so padding is seen.",

    DeadHead "dead-head"
    "Queries and keys of a head both start at zero, so neither ever gets a gradient. Start at most one of them at zero.",

    SharedSlice "shared-slice"
    "Two heads use the same columns of the projections. Those of head h begin at h · d.",

    ForgottenPath "forgotten-path"
    "The gradient with respect to the input forgets what came through the keys. In self-attention it is a sum of three paths.",

    KeysNotTransposed "keys-not-transposed"
    "The gradient with respect to the keys forgets a transpose, where shapes allow it: with as many queries as keys. It is dSᵀ Q.",
}

impl Fault {
    /// What the faults of each number are about, from 1 on.
    pub const GROUPS: [&str; 23] = [
        "a mask misread, or its diagonal hidden",
        "the width of a window",
        "the corner of a causal mask",
        "a query that may see nothing",
        "a finite number in place of −∞",
        "NaN in what is hidden",
        "softmax over the wrong axis",
        "the scale",
        "heads without a transpose",
        "dropout",
        "positions while decoding",
        "a window together with a cache",
        "the pairs of rotary positions",
        "rotary angles in too few bits",
        "heads that share keys and values",
        "ALiBi's slopes",
        "the gradient of softmax",
        "merging partial results",
        "overflow and underflow",
        "linear attention's denominator",
        "latent attention",
        "the same bits in any company",
        "a soft cap on scores",
    ];
}
