{{/* Names, labels and references used by every object. */}}

{{- define "ibpulse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ibpulse.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "ibpulse.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name with a suffix, as (list . "suffix"). The name is truncated if necessary, never the suffix. */}}
{{- define "ibpulse.nameWith" -}}
{{- $ending := index . 1 }}
{{- printf "%s-%s" (include "ibpulse.fullname" (index . 0) | trunc (int (sub 62 (len $ending))) | trimSuffix "-") $ending }}
{{- end }}

{{- define "ibpulse.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "ibpulse.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ibpulse.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Another name than the DaemonSet's pods have: the Service is not meant for the pod of `helm test`. */}}
{{- define "ibpulse.testLabels" -}}
app.kubernetes.io/name: {{ include "ibpulse.nameWith" (list . "test") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ibpulse.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" (include "ibpulse.name" .)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" (.Values.image.tag | default .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/component" "metrics"
  "app.kubernetes.io/part-of" (include "ibpulse.name" .)
  "app.kubernetes.io/managed-by" .Release.Service }}
{{- toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{/*
The metadata of one object, as (dict "of" . "name" .. "namespace" .. "labels" .. "annotations" .. "identity" ..); all but
"of" may be left out. The labels of "identity" take precedence over the chart's own.
*/}}
{{- define "ibpulse.metadata" -}}
name: {{ .name | default (include "ibpulse.fullname" .of) }}
namespace: {{ .namespace | default (include "ibpulse.namespace" .of) }}
labels:
  {{- toYaml (merge (.identity | default dict) (include "ibpulse.labels" .of | fromYaml) (.labels | default dict)) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .of.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ibpulse.serviceAccountName" -}}
{{- default (.Values.serviceAccount.create | ternary (include "ibpulse.fullname" .) "default") .Values.serviceAccount.name }}
{{- end }}

{{/* The class of the pods; the chart's own has the namespace in its name, because classes have none. */}}
{{- define "ibpulse.priorityClassName" -}}
{{- if .Values.priorityClassName }}
{{- .Values.priorityClassName }}
{{- else if .Values.priorityClass.create }}
{{- printf "%s-%s" (include "ibpulse.namespace" .) (include "ibpulse.fullname" .) }}
{{- end }}
{{- end }}

{{- define "ibpulse.image" -}}
{{- $image := .Values.image }}
{{- $name := $image.registry | empty | ternary $image.repository (printf "%s/%s" $image.registry $image.repository) }}
{{- if $image.digest }}{{ $name }}@{{ $image.digest }}{{ else }}{{ $name }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "ibpulse.imagePullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ kindIs "string" . | ternary . (dig "name" "" (kindIs "map" . | ternary . dict)) }}
{{- end }}
{{- end }}

{{/* A value with its templates rendered, as (dict "of" . "value" ..). */}}
{{- define "ibpulse.filled" -}}
{{- if kindIs "string" .value }}{{ tpl .value .of }}{{ else }}{{ tpl (toYaml .value) .of }}{{ end }}
{{- end }}
