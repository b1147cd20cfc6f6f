{{/* The gateway: what its objects are called and selected by, and how it finds and asks the nodes. */}}

{{- define "ibpulse.gateway.fullname" -}}
{{- include "ibpulse.nameWith" (list . "gateway") }}
{{- end }}

{{/* Its name differs from that of the DaemonSet's pods, so that their Service, policy and monitors do not select the gateway. */}}
{{- define "ibpulse.gateway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ibpulse.name" . | trunc 55 | trimSuffix "-" }}-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ibpulse.gateway.identity" -}}
{{ include "ibpulse.gateway.selectorLabels" . }}
app.kubernetes.io/component: gateway
{{- end }}

{{/* The metadata of an object of the gateway, as for "ibpulse.metadata". */}}
{{- define "ibpulse.gateway.metadata" -}}
{{- $identity := include "ibpulse.gateway.identity" .of | fromYaml }}
{{- $name := .name | default (include "ibpulse.gateway.fullname" .of) }}
{{- include "ibpulse.metadata" (dict "of" .of "identity" $identity "name" $name "namespace" .namespace "labels" .labels "annotations" .annotations) }}
{{- end }}

{{- define "ibpulse.gateway.serviceAccountName" -}}
{{- $account := .Values.gateway.serviceAccount }}
{{- default ($account.create | ternary (include "ibpulse.gateway.fullname" .) "default") $account.name }}
{{- end }}

{{- define "ibpulse.gateway.webSecret" -}}
{{- include "ibpulse.fileSecret" (dict "of" . "config" .Values.gateway.webConfig "ending" "gateway-web") }}
{{- end }}

{{- define "ibpulse.gateway.nodesSecret" -}}
{{- include "ibpulse.fileSecret" (dict "of" . "config" .Values.gateway.nodeConfig "ending" "gateway-nodes") }}
{{- end }}

{{/* The Secrets that it mounts, each as NAME: {secret, directory}. */}}
{{- define "ibpulse.gateway.mounts" -}}
{{- $at := include "ibpulse.directories" . | fromYaml }}
{{- $mounts := dict }}
{{- with include "ibpulse.gateway.webSecret" . }}{{ $_ := set $mounts "web" (dict "secret" . "directory" $at.web) }}{{ end }}
{{- with .Values.gateway.webConfig.tlsSecret }}{{ $_ := set $mounts "tls" (dict "secret" . "directory" $at.tls) }}{{ end }}
{{- with include "ibpulse.gateway.nodesSecret" . }}{{ $_ := set $mounts "nodes" (dict "secret" . "directory" $at.nodes) }}{{ end }}
{{- with .Values.gateway.nodeConfig.tlsSecret }}{{ $_ := set $mounts "nodes-tls" (dict "secret" . "directory" $at.nodesTls) }}{{ end }}
{{- toYaml $mounts }}
{{- end }}

{{/* Its command line. */}}
{{- define "ibpulse.gateway.args" -}}
{{- $at := include "ibpulse.directories" . | fromYaml }}
{{- $gateway := .Values.gateway }}
{{- $service := printf "dns+%s://%s.%s.svc:%d" (include "ibpulse.scheme" .Values.webConfig) (include "ibpulse.fullname" .) (include "ibpulse.namespace" .) (int .Values.port) }}
- gateway
- --web.listen-address=:{{ $gateway.port }}
{{- range $gateway.sources | default (list $service) }}
- {{ printf "--nodes.sources=%s" . | quote }}
{{- end }}
{{- if include "ibpulse.gateway.nodesSecret" . }}
- --nodes.config.file={{ $at.nodes }}/{{ $gateway.nodeConfig.key }}
{{- end }}
{{- if include "ibpulse.gateway.webSecret" . }}
- --web.config.file={{ $at.web }}/{{ $gateway.webConfig.key }}
{{- end }}
{{- with $gateway.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pod's security context. On OpenShift, the default constraint applies, which assigns the user itself. */}}
{{- define "ibpulse.gateway.podSecurityContext" -}}
{{- $openshift := .Values.openshift.securityContextConstraints }}
{{- toYaml ($openshift | ternary (omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup") .Values.podSecurityContext) }}
{{- end }}

{{/* Several pods prefer different nodes. */}}
{{- define "ibpulse.gateway.affinity" -}}
{{- $affinity := .Values.gateway.affinity }}
{{- if and (gt (int .Values.gateway.replicas) 1) (not $affinity.podAntiAffinity) }}
{{- $selector := dict "matchLabels" (include "ibpulse.gateway.selectorLabels" . | fromYaml) }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector }}
{{- $apart := dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) }}
{{- $affinity = merge (dict "podAntiAffinity" $apart) $affinity }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* Refuses values with which it would not start, or would have no nodes. */}}
{{- define "ibpulse.gateway.check" -}}
{{- $gateway := .Values.gateway }}
{{- if and $gateway.enabled (not .Values.service.enabled) (empty $gateway.sources) }}
{{- fail "gateway.enabled: it finds the nodes through the Service; set service.enabled=true, or give gateway.sources" }}
{{- end }}
{{- range $name := list "webConfig" "nodeConfig" }}
{{- $config := get $gateway $name }}
{{- if and $config.existingSecret $config.content }}
{{- fail (printf "gateway.%s.existingSecret and gateway.%s.content: only one file can be used; leave one of them empty" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
