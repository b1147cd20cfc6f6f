{{/*
Node profiles: settings for nodes with a label, each with a DaemonSet and a ConfigMap of its own. In the templates of these
objects, `.profile` is the profile, or absent for all other nodes, and `.Values.config` has the profile's settings.
*/}}

{{/* An object for all other nodes and one for each profile, as (dict "of" . "template" "NAME"). */}}
{{- define "ibpulse.forProfiles" -}}
{{- $of := .of }}
{{- $template := .template }}
{{- include $template $of }}
{{- range $of.Values.profiles }}
{{- $config := mergeOverwrite (deepCopy $of.Values.config) (deepCopy .config) }}
{{- $values := merge (dict "config" $config) (omit $of.Values "config") }}
---
{{ include $template (dict "profile" . "Values" $values "Chart" $of.Chart "Release" $of.Release "Capabilities" $of.Capabilities "Files" $of.Files "Template" $of.Template) }}
{{- end }}
{{- end }}

{{- define "ibpulse.profileName" -}}
{{- if .profile }}{{ include "ibpulse.nameWith" (list . .profile.name) }}{{ else }}{{ include "ibpulse.fullname" . }}{{ end }}
{{- end }}

{{/* The label that tells the pods of a profile from all others. Those of no profile have none. */}}
{{- define "ibpulse.profileLabels" -}}
{{- with .profile }}ibpulse-profile: {{ .name }}{{ end }}
{{- end }}

{{/* The expressions that choose the nodes of a profile, or of none: of several that fit, a node has the first. */}}
{{- define "ibpulse.profileNodes" -}}
{{- $own := dig "name" "" (.profile | default dict) }}
{{- $reached := false }}
{{- range .Values.profiles }}
{{- if not $reached }}
{{- $reached = eq .name $own }}
- {key: {{ .label | quote }}, operator: {{ $reached | ternary "In" "NotIn" }}, values: {{ toJson .values }}}
{{- end }}
{{- end }}
{{- end }}
