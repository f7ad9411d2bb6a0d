local keep
return {name = "A1", summary = "s", condition = "c", advice = "a", by_name_only = true,
  modes = {"train", "eval"}, params = {{name = "p", help = "h", default = 0.1, least = 0, most = 1},
  {name = "c", help = "h", default = 3}, {name = "f", help = "h", default = false},
  {name = "r", help = "h", default = "^fc", kind = "regex"}, {name = "n", help = "h", kind = "collections"}},
  needs = {{what = "w", how = {"vitals", "values", "hash", "sketch"}, each_step = true, optional = true}},
  init = function(ctx) end,
  observe = function(ctx, t, seen) t.memory[1] = seen.values[1] + #seen.values + seen.shape[1] + seen.hash end,
  step = function(ctx)
    for k, v in pairs(ctx.tensors) do keep = v.vitals.std + v.vitals.finite end
    ctx:found{tensor = ctx.tensors[1], statistic = "s", message = ("x"):rep(3), value = keep, threshold = 1}
  end,
  finish = function(ctx) ctx:lacked("x") ctx:fail("y") end}
