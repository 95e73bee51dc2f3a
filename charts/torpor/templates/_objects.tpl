{{/* The manifests of a folder of files/, as in config, in the namespace of the release. */}}
{{- define "torpor.folder" }}
{{- range $path, $_ := .root.Files.Glob (printf "files/%s/*.yaml" .folder) }}
{{- if not (has (base $path) (list "kustomization.yaml" "deployment.yaml" "service_account.yaml" "namespace.yaml" "network_policy.yaml" "flow_schema.yaml")) }}
---
{{ $.root.Files.Get $path | replace "namespace: torpor-system" (printf "namespace: %s" $.root.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}
