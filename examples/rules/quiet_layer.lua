-- quiet_layer.lua - a rule in Lua to copy: the outputs of a layer lose their spread.
--
--     sonde rules RUN --rules ./quiet_layer.lua:share=0.1

local rule = {
    name = "QuietLayer",
    summary = "the spread of an activation falls far below its first value",
    condition = "std is below `share` times its mean over the first `first` steps, at `patience` steps in a row.",
    advice = "Check the layers before this one for dead units, or for weight decay that is too strong.",
    params = {
        {name = "share", default = 0.05, least = 0.0, most = 1.0, help = "share of the first spread"},
        {name = "first", default = 5, least = 1, most = 1000, help = "observed steps that are averaged"},
        {name = "patience", default = 3, least = 1, most = 1000, help = "observed steps in a row"},
    },
    needs = {{what = "activations", how = "vitals"}},
    modes = "train",
}

-- Called once for every tensor.
function rule.wants(ctx, tensor)
    return tensor.role == "activation" or tensor.role == "output"
end

function rule.step(ctx)
    for _, tensor in ipairs(ctx.tensors) do
        local v, memory = tensor.vitals, tensor.memory -- vitals is nil if it was not seen
        if v then
            memory.seen = (memory.seen or 0) + 1
            if memory.seen <= ctx.params.first then
                memory.before = (memory.before or 0) + v.std / ctx.params.first
            else
                local quiet = v.std < ctx.params.share * memory.before
                memory.steps = quiet and (memory.steps or 0) + 1 or 0
                if memory.steps >= ctx.params.patience then
                    ctx:found{tensor = tensor, statistic = "std", value = v.std,
                              threshold = ctx.params.share * memory.before,
                              message = string.format("Its spread is %.3g and was %.3g.",
                                                      v.std, memory.before)}
                end
            end
        end
    end
end

return rule
