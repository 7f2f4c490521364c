{{/* The annotations by which somebody else publishes the authority of the certificates (OPS-051), in YAML. */}}
{{- define "kruise.authority" -}}
{{- $gates := include "kruise.gates" . | fromYaml -}}
{{- $external := .values.externalCerts -}}
{{- if and $external.certManager.enabled (not $gates.EnableExternalCerts) -}}
{{- fail "externalCerts.certManager.enabled needs EnableExternalCerts=true in featureGates" -}}
{{- end -}}
{{- $annotations := deepCopy $external.annotations -}}
{{- if $external.certManager.enabled -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/kruise-webhook-certs" .values.installation.namespace) -}}
{{- end -}}
{{- if $gates.EnableExternalCerts -}}{{- $annotations | toYaml -}}{{- else -}}{}{{- end -}}
{{- end -}}

{{/* Objects of a file; with certificates of somebody else, those that are others then. In YAML. */}}
{{- define "kruise.certified" -}}
{{- $gates := include "kruise.gates" . | fromYaml -}}
{{- $objects := (include "kruise.objects" . | fromYaml).items -}}
{{- if $gates.EnableExternalCerts -}}
{{- $others := dict -}}
{{- range (include "kruise.objects" (merge (dict "file" "external-certs.yaml") .) | fromYaml).items -}}
{{- $_ := set $others (printf "%s %s" .kind .metadata.name) . -}}
{{- end -}}
{{- $chosen := list -}}
{{- range $objects -}}
{{- $other := get $others (printf "%s %s" .kind .metadata.name) -}}
{{- if $other -}}
{{- if hasKey $other.metadata "annotations" -}}{{- $_ := unset $other.metadata "annotations" -}}{{- end -}}
{{- $chosen = append $chosen $other -}}
{{- else -}}
{{- $chosen = append $chosen . -}}
{{- end -}}
{{- end -}}
{{- $objects = $chosen -}}
{{- end -}}
{{- dict "items" $objects | toYaml -}}
{{- end -}}
