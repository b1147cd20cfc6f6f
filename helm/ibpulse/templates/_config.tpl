{{/* The settings that the chart controls, and the checks for values with which the pods would not start. */}}

{{- define "ibpulse.directories" -}}
sysfs: /host/sys
ring: /run/ibpulse
captures: /var/lib/ibpulse/captures
config: /etc/ibpulse/config
web: /etc/ibpulse/web
tls: /etc/ibpulse/tls
nodes: /etc/ibpulse/nodes
nodesTls: /etc/ibpulse/nodes-tls
{{- end }}

{{/* The settings that the chart controls, and the chart value to use instead. */}}
{{- define "ibpulse.ownSettings" -}}
path.sysfs: sysfs.hostPath
ring.dir: ring.sizeLimit
capture.dir: captures.volume
web.listen-address: port
web.config.file: webConfig
sampler.scheduler: fifo.enabled
{{- end }}

{{/* The complete configuration file. */}}
{{- define "ibpulse.settings" -}}
{{- $given := .Values.config }}
{{- range $name, $instead := include "ibpulse.ownSettings" . | fromYaml }}
{{- $group := splitList "." $name | first }}
{{- $last := trimPrefix (printf "%s." $group) $name }}
{{- if hasKey (get $given $group | default dict) $last }}
{{- fail (printf "config.%s: the chart sets this itself; use the value %s" $name $instead) }}
{{- end }}
{{- end }}
{{- $at := include "ibpulse.directories" . | fromYaml }}
{{- $own := dict
  "path" (dict "sysfs" $at.sysfs)
  "ring" (dict "dir" $at.ring)
  "capture" (dict "dir" $at.captures)
  "web" (dict "listen-address" (printf ":%d" (int .Values.port))) }}
{{- if include "ibpulse.webSecret" . }}
{{- $_ := set $own.web "config.file" (printf "%s/%s" $at.web .Values.webConfig.key) }}
{{- end }}
{{- if .Values.fifo.enabled }}
{{- $_ := set $own "sampler" (dict "scheduler" "fifo") }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy $given) $own) }}
{{- end }}

{{/* A duration such as 1h30m, in milliseconds. */}}
{{- define "ibpulse.milliseconds" -}}
{{- $units := dict "ns" 0.000001 "us" 0.001 "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 }}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* A Kubernetes quantity such as 64Mi, in bytes. */}}
{{- define "ibpulse.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[A-Za-z]*$" .)) }}
{{- end }}

{{/* Size of the ring in bytes for the history plus two seconds: its header, 48 per port and tick, 128 per port and
reading of its signals. */}}
{{- define "ibpulse.ringBytes" -}}
{{- $sampler := .Values.config.sampler | default dict }}
{{- $history := include "ibpulse.milliseconds" ($sampler.history | default "5m") | float64 }}
{{- $interval := include "ibpulse.milliseconds" ($sampler.interval | default "10ms") | float64 }}
{{- $ticks := floor (divf (addf $history 2000) $interval) }}
{{- $signals := 0.0 }}
{{- with include "ibpulse.milliseconds" ($sampler.signals | default "100ms") | float64 }}
{{- $signals = addf 1024 (mulf 128 (floor (divf $ticks (maxf 1 (floor (divf . $interval)))))) }}
{{- end }}
{{- addf 77824 (mulf .Values.ring.ports (addf (mulf 48 $ticks) $signals)) }}
{{- end }}

{{/* Refuses combinations of values that are only valid on their own. */}}
{{- define "ibpulse.check" -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled: every pod would be scraped twice; switch one of them off" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}
{{- fail "serviceMonitor.enabled: it finds pods through the Service; set service.enabled=true, or use podMonitor.enabled" }}
{{- end }}
{{- if and .Values.webConfig.existingSecret .Values.webConfig.content }}
{{- fail "webConfig.existingSecret and webConfig.content: only one file can be used; leave one of them empty" }}
{{- end }}
{{- include "ibpulse.gateway.check" . }}
{{- $names := list }}
{{- range .Values.profiles }}
{{- if has .name $names }}
{{- fail (printf "profiles: two have the name %s; a name is part of the names of objects" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- if and (eq .Values.captures.volume "existingClaim") (not .Values.captures.existingClaim) }}
{{- fail "captures.volume: existingClaim needs the name of a claim; set captures.existingClaim" }}
{{- end }}
{{- $needed := include "ibpulse.ringBytes" . | float64 }}
{{- if gt $needed (include "ibpulse.bytes" .Values.ring.sizeLimit | float64) }}
{{- fail (printf "ring.sizeLimit: %s cannot hold the samples of %v ports, which are %.0f MB; raise it, and resources.limits.memory with it, or shorten config.sampler.history" .Values.ring.sizeLimit .Values.ring.ports (divf $needed 1e6)) }}
{{- end }}
{{- end }}
