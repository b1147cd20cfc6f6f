{{/* The warnings in NOTES.txt. */}}

{{- define "ibpulse.warnings" -}}
{{- $limits := .Values.resources.limits | default dict }}
{{- with $limits.cpu }}
{{- $cores := toString . }}
{{- $used := hasSuffix "m" $cores | ternary (divf (trimSuffix "m" $cores | float64) 1000) ($cores | float64) }}
{{- if lt $used 1.0 }}

WARNING: resources.limits.cpu is {{ . }}. A quota stops the sampler for the rest of each 100 ms: with 200m, a
sampler that used 4 % of a core missed 11 % of its samples. Remove the limit (resources.limits.cpu=null); a request is enough.
{{- end }}
{{- end }}
{{- with $limits.memory }}
{{- $needed := addf 105e6 (mulf 1.1 (include "ibpulse.ringBytes" $ | float64)) }}
{{- if lt (include "ibpulse.bytes" (toString .) | float64) $needed }}

WARNING: resources.limits.memory is {{ . }}. The ring of {{ $.Values.ring.ports }} ports, the daemon, and a capture while it is written
take {{ printf "%.0f" (divf $needed 1e6) }} MB; with less, the kernel kills the process that writes the capture, or the container.
{{- end }}
{{- end }}
{{- $monitors := dict "podMonitor" "PodMonitor" "serviceMonitor" "ServiceMonitor" "prometheusRule" "PrometheusRule" }}
{{- range $value, $kind := $monitors }}
{{- if and (get $.Values $value).enabled (not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) }}

WARNING: {{ $value }}.enabled, but this cluster has no {{ $kind }} resource: install the Prometheus operator's custom resource
definitions first, or set {{ $value }}.enabled=false.
{{- end }}
{{- end }}
{{- range $name, $instead := include "ibpulse.retiredThresholds" . | fromYaml }}
{{- if hasKey $.Values.prometheusRule.thresholds $name }}

WARNING: prometheusRule.thresholds.{{ $name }} is deprecated. {{ $instead }}
{{- end }}
{{- end }}
{{- range $name, $instead := include "ibpulse.retiredAlerts" . | fromYaml }}
{{- if hasKey $.Values.prometheusRule.alerts $name }}

WARNING: prometheusRule.alerts.{{ $name }} is deprecated. It has no effect. {{ $instead }}
{{- end }}
{{- end }}
{{- with .Values.prometheusRule }}
{{- if and .enabled (not (and (contains "://" .runbooks) (contains "://" .grafana))) }}

NOTE: links in notifications lead nowhere outside of Grafana. Set prometheusRule.runbooks and prometheusRule.grafana to
addresses that begin with https://.
{{- end }}
{{- end }}
{{- if not (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) }}

NOTE: nothing scrapes the pods yet. With the Prometheus operator, set podMonitor.enabled=true; without it, let Prometheus
scrape the pods with the label app.kubernetes.io/name={{ include "ibpulse.name" . }}, port {{ .Values.port }}.
{{- end }}
{{- if and (eq (include "ibpulse.scheme" .) "https") .Values.podMonitor.enabled (empty .Values.podMonitor.tlsConfig) }}

WARNING: webConfig turns TLS on, but podMonitor.tlsConfig is empty: Prometheus connects to pods by address and cannot verify
their certificates. Set podMonitor.tlsConfig.ca and podMonitor.tlsConfig.serverName.
{{- end }}
{{- if eq .Values.captures.volume "hostPath" }}

NOTE: captures are stored in {{ .Values.captures.hostPath }} on each node. Pods do not start if it is missing; create it once:
  install -d -m 0770 -o {{ ternary "root" "65532" .Values.fifo.enabled }} -g 65532 {{ .Values.captures.hostPath }}
{{- end }}
{{- if empty .Values.image.registry }}

NOTE: image.registry is empty: {{ include "ibpulse.image" . }} must already be on the nodes. Otherwise set image.registry to your registry.
{{- end }}
{{- end }}
