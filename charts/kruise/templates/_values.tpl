{{/* Values, those that an older values file does not know included (OPS-113), in YAML. */}}
{{- define "kruise.values" -}}
{{- $values := .Files.Get "files/values.yaml" | fromYaml -}}
{{- include "kruise.defaulted" (dict "into" $values "from" (.Values | toYaml | fromYaml)) -}}
{{- if eq $values.installation.namespace $values.installation.daemonConfigNamespace -}}
{{- fail "installation.daemonConfigNamespace must be another namespace than installation.namespace: node daemons may read every Secret in it" -}}
{{- end -}}
{{- range tuple (dict "key" "manager" "of" $values.manager.image) (dict "key" "daemon" "of" $values.daemon.image) (dict "key" "helmHooks" "of" $values.helmHooks.image) -}}
{{- if regexMatch "(^|/)kruise-(manager|daemon|helm-hook)$" .of.repository -}}
{{- fail (printf "%s.image.repository is %s, an image of OpenKruise: name one of this project. After its chart, upgrade with --reset-values and a values file, and not with --reuse-values" .key .of.repository) -}}
{{- end -}}
{{- end -}}
{{- if $values.daemon.windowsImage.repository -}}
{{- fail "daemon.windowsImage.repository must be empty: there is no node daemon for Windows yet" -}}
{{- end -}}
{{- $values | toYaml -}}
{{- end -}}

{{/* Lays values over their defaults: maps of the chart are merged, those of users are taken as they are. */}}
{{- define "kruise.defaulted" -}}
{{- $free := list "resources" "nodeSelector" "affinity" "nodeAffinity" "annotations" "labels" "podAnnotations" "podLabels" "podSpec" "container" -}}
{{- range $key, $value := .from -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $.into $key)) (not (has $key $free)) -}}
{{- include "kruise.defaulted" (dict "into" (get $.into $key) "from" $value) -}}
{{- else -}}
{{- $_ := set $.into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Lays one map over another: maps are merged, anything else is replaced, null removes. */}}
{{- define "kruise.merge" -}}
{{- range $key, $value := .from -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $.into $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $.into $key)) -}}
{{- include "kruise.merge" (dict "into" (get $.into $key) "from" $value) -}}
{{- else -}}
{{- $_ := set $.into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Narrows the right to write Secrets and ConfigMaps to names, where some are given; a creation cannot be. Changes the role, and returns nothing. */}}
{{- define "kruise.narrowed" -}}
{{- $rules := list -}}
{{- range .role.rules -}}
{{- if not (has "secrets" .resources) -}}{{- $rules = append $rules . -}}{{- end -}}
{{- end -}}
{{- range $resource, $names := dict "configmaps" .names.configMapNames "secrets" .names.secretNames -}}
{{- $rule := dict "apiGroups" (list "") "resources" (list $resource) "verbs" (list "delete" "get" "list" "patch" "watch") -}}
{{- if $names -}}{{- $_ := set $rule "resourceNames" $names -}}{{- end -}}
{{- $rules = concat $rules (list $rule (dict "apiGroups" (list "") "resources" (list $resource) "verbs" (list "create"))) -}}
{{- end -}}
{{- $_ := set .role "rules" $rules -}}
{{- end -}}

{{/* Objects of a file, in YAML, with the namespaces that values name. */}}
{{- define "kruise.objects" -}}
{{- $installation := .values.installation -}}
{{- .root.Files.Get (printf "files/%s" .file) | replace "kruise-daemon-config" "<daemons>" | replace "kruise-system" $installation.namespace | replace "<daemons>" $installation.daemonConfigNamespace -}}
{{- end -}}

{{/* The feature gates in force, in YAML: what the manager makes of the same list (OPS-035, OPS-036, OPS-038). */}}
{{- define "kruise.gates" -}}
{{- $features := .root.Files.Get "files/features.yaml" | fromYaml -}}
{{- $wanted := dict -}}
{{- range $entry := splitList "," (.values.featureGates | default "") -}}
{{- if trim $entry -}}
{{- $name := trim (first (splitList "=" $entry)) -}}
{{- $value := trim (trimPrefix (first (splitList "=" $entry)) $entry | trimPrefix "=") -}}
{{- $name = get $features.aliases $name | default $name -}}
{{- if not (or (hasKey $features.gates $name) (has $name (list "AllAlpha" "AllBeta"))) -}}
{{- fail (printf "featureGates: there is no feature gate %q" $name) -}}
{{- else if not (regexMatch "^(1|t|T|TRUE|true|True|0|f|F|FALSE|false|False)$" $value) -}}
{{- fail (printf "featureGates: %s must be true or false, and is %q" $name $value) -}}
{{- end -}}
{{- $_ := set $wanted $name (regexMatch "^(1|t|T)" $value) -}}
{{- end -}}
{{- end -}}
{{- $gates := dict -}}
{{- range $name, $gate := $features.gates -}}
{{- $on := $gate.default -}}
{{- if hasKey $wanted $name -}}
{{- $on = get $wanted $name -}}
{{- else if and (eq $gate.stage "ALPHA") (hasKey $wanted "AllAlpha") -}}
{{- $on = get $wanted "AllAlpha" -}}
{{- else if and (eq $gate.stage "BETA") (hasKey $wanted "AllBeta") -}}
{{- $on = get $wanted "AllBeta" -}}
{{- end -}}
{{- $_ := set $gates $name $on -}}
{{- end -}}
{{- range $features.implications -}}
{{- if eq (get $gates .cause) .value -}}
{{- $forced := .forced -}}
{{- range .others -}}{{- $_ := set $gates . $forced -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $gates | toYaml -}}
{{- end -}}

{{/* An image by its values; fallback is that of another. */}}
{{- define "kruise.image" -}}
{{- $tag := .image.tag | default (ternary "dev" .root.Chart.AppVersion (eq .root.Chart.AppVersion "0.0.0-dev")) -}}
{{- if hasPrefix "sha256:" $tag -}}{{ .image.repository }}@{{ $tag }}{{- else -}}{{ .image.repository }}:{{ $tag }}{{- end -}}
{{- end -}}

{{/* Lays what values say of both workloads over a Deployment or DaemonSet, and its first container. */}}
{{- define "kruise.workload" -}}
{{- $values := .values -}}{{- $own := .own -}}
{{- $spec := .object.spec -}}{{- $pod := $spec.template.spec -}}{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "kruise.image" (dict "root" .root "image" $own.image)) -}}
{{- with $own.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- $args := list (printf "--v=%v" $own.log.level) -}}
{{- with $values.featureGates -}}{{- $args = append $args (printf "--feature-gates=%s" .) -}}{{- end -}}
{{- $_ := set $container "args" (concat $args .args $own.extraArgs) -}}
{{- /* API servers refuse a variable that is there twice when it is applied. */ -}}
{{- $wished := list -}}{{- range $own.extraEnvs -}}{{- $wished = append $wished .name -}}{{- end -}}
{{- $env := list -}}
{{- range concat $container.env .env -}}{{- if not (has .name $wished) -}}{{- $env = append $env . -}}{{- end -}}{{- end -}}
{{- $_ := set $container "env" (concat $env $own.extraEnvs) -}}
{{- $_ := set $container "resources" $own.resources -}}
{{- $_ := set $pod "priorityClassName" $own.priorityClassName -}}
{{- with $values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- with $own.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (merge (dict) . ($pod.nodeSelector | default dict)) -}}{{- end -}}
{{- if $own.tolerations -}}{{- $_ := set $pod "tolerations" $own.tolerations -}}{{- else -}}{{- $_ := unset $pod "tolerations" -}}{{- end -}}
{{- with $own.podAnnotations -}}{{- $_ := set $spec.template.metadata "annotations" . -}}{{- end -}}
{{- $_ := set $spec.template.metadata "labels" (merge (dict) $spec.template.metadata.labels $own.podLabels) -}}
{{- if not (kindIs "invalid" $own.revisionHistoryLimit) -}}{{- $_ := set $spec "revisionHistoryLimit" (int $own.revisionHistoryLimit) -}}{{- end -}}
{{- include "kruise.merge" (dict "into" $container "from" $own.container) -}}
{{- include "kruise.merge" (dict "into" $pod "from" $own.podSpec) -}}
{{- if not $pod.priorityClassName -}}{{- $_ := unset $pod "priorityClassName" -}}{{- end -}}
{{- end -}}

{{/* The limit of memory that Go keeps below: of 1Gi it is 900MiB. Empty without a limit, or one that is no plain quantity. */}}
{{- define "kruise.goMemory" -}}
{{- $limit := dig "limits" "memory" "" .resources -}}
{{- $text := kindIs "string" $limit | ternary $limit (printf "%.0f" (float64 $limit)) -}}
{{- if regexMatch "^[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text -}}
{{- $units := dict "" 1.0 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 -}}
{{- $bytes := mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text)) -}}
{{- printf "%dMiB" (div (int64 (mulf $bytes 225.0)) 268435456) -}}
{{- end -}}
{{- end -}}
