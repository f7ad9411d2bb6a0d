-- thin_row.lua
local rule = {
    name = "ThinRow",
    summary = "a row of a weight is small beside the others",
    condition = "Its sum of |w| < `share` times the largest row's.",
    advice = "Look whether this unit is used at all.",
    params = {{name = "share", default = 0.001, least = 0.0, most = 1.0, help = "of the largest"}},
    needs = {{what = "values of weights", how = "values"}},
}

function rule.wants(ctx, tensor)
    return tensor.role == "weight" and #tensor.shape == 2 and not tensor.same_as
end

function rule.observe(ctx, tensor, seen)
    local rows, columns = table.unpack(seen.shape)
    local least, most, values = math.huge, 0, seen.values
    for row = 0, rows - 1 do
        local sum = 0
        for column = 1, columns do
            sum = sum + math.abs(values[row * columns + column])
        end
        least, most = math.min(least, sum), math.max(most, sum)
    end
    if least < ctx.params.share * most then
        ctx:found{tensor = tensor, statistic = "row", value = least,
                  threshold = ctx.params.share * most, message = "A row is nearly 0."}
    end
end

return rule
