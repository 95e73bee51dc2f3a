{{/* Renders the manifests of a folder in files/, which has the content of config, for the namespace of the release. */}}
{{- define "torpor.folder" }}
{{- range $path, $_ := .root.Files.Glob (printf "files/%s/*.yaml" .folder) }}
{{- if not (has (base $path) (list "kustomization.yaml" "deployment.yaml" "disruption_budget.yaml" "service_account.yaml" "namespace.yaml" "network_policy.yaml" "flow_schema.yaml")) }}
---
{{ $.root.Files.Get $path | replace "namespace: torpor-system" (printf "namespace: %s" $.root.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{/* Returns the method of recording requesters: policy, webhook or off. auto checks the kinds that the hub serves, or for helm template the Kubernetes version. */}}
{{- define "torpor.record" }}
{{- $noted := false }}
{{- range .Values.features }}{{ if $.Files.Get (printf "files/record/%s.yaml" .) }}{{ $noted = true }}{{ end }}{{ end }}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- $unasked := not (.Capabilities.APIVersions.Has "apps/v1/Deployment") }}
{{- if not $noted }}off
{{- else if ne .Values.record "auto" }}{{ .Values.record }}
{{- else if or $served (and $unasked (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)) }}policy
{{- else }}webhook
{{- end }}
{{- end }}
