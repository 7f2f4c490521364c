-- kinds: apps.kruise.io_CloneSet apps.kruise.io_DaemonSet apps.kruise.io_SidecarSet apps.kruise.io_StatefulSet
local strategy = obj.spec.updateStrategy or {}
local paused = strategy.paused or (strategy.rollingUpdate or {}).paused or false
local actions = {
  pause = {disabled = paused},
  resume = {disabled = not paused},
}
if obj.kind ~= "SidecarSet" then
  actions["restart"] = {disabled = paused}
end
return actions
