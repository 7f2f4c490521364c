obj.spec.updateStrategy = obj.spec.updateStrategy or {}
local strategy = obj.spec.updateStrategy
if obj.kind ~= "SidecarSet" and not (obj.kind == "CloneSet" and obj.apiVersion == "apps.kruise.io/v1alpha1") then
  strategy.rollingUpdate = strategy.rollingUpdate or {}
  strategy = strategy.rollingUpdate
end
strategy.paused = true
return obj
