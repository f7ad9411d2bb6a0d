-- quiet_layer.lua - a rule in Lua to copy: an activation falls silent over the run.
--
--     sonde rules RUN --rule ./quiet_layer.lua:share=0.1

local rule = {
    name = "QuietLayer",
    summary = "an activation's spread falls far below what it was",
    condition = "std < `share` of its mean over the first `first` steps, `patience` steps in a row.",
    advice = "Look at what comes before this layer: dead units, or weight decay that is too strong.",
    params = {
        {name = "share", default = 0.05, least = 0.0, most = 1.0, help = "of the first spread"},
        {name = "first", default = 5, least = 1, most = 1000, help = "observed steps averaged"},
        {name = "patience", default = 3, least = 1, most = 1000, help = "observed steps in a row"},
    },
    needs = {{what = "vital signs of activations", how = "vitals"}},
    modes = "train",
}

-- Asked once for every tensor.
function rule.wants(ctx, tensor)
    return tensor.role == "activation" or tensor.role == "output"
end

function rule.step(ctx)
    for _, tensor in ipairs(ctx.tensors) do
        local v, own = tensor.vitals, tensor.memory -- vitals is nil if it was not seen
        if v then
            own.seen = (own.seen or 0) + 1
            if own.seen <= ctx.params.first then
                own.before = (own.before or 0) + v.std / ctx.params.first
            else
                local quiet = v.std < ctx.params.share * own.before
                own.steps = quiet and (own.steps or 0) + 1 or 0
                if own.steps >= ctx.params.patience then
                    ctx:found{tensor = tensor, statistic = "std", value = v.std,
                              threshold = ctx.params.share * own.before,
                              message = string.format("Its spread is %.3g, and was %.3g.",
                                                      v.std, own.before)}
                end
            end
        end
    end
end

return rule
