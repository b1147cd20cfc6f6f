{{/* Parts of the pod. */}}

{{/* The container's security context. Real-time scheduling needs root with one capability. */}}
{{- define "ibpulse.securityContext" -}}
{{- $context := deepCopy .Values.securityContext }}
{{- if .Values.fifo.enabled }}
{{- $dropped := dig "capabilities" "drop" (list "ALL") $context }}
{{- $context = mergeOverwrite $context (dict "runAsUser" 0 "runAsNonRoot" false "capabilities" (dict "drop" $dropped "add" (list "SYS_NICE"))) }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The node labels of a preset: alternatives, each a map of labels. */}}
{{- define "ibpulse.presets" -}}
any: []
nfd-pci:
  - {feature.node.kubernetes.io/pci-15b3.present: "true"}
  - {feature.node.kubernetes.io/pci-0207_15b3.present: "true"}
  - {feature.node.kubernetes.io/pci-0200_15b3.present: "true"}
nfd-rdma:
  - {feature.node.kubernetes.io/rdma.capable: "true"}
  - {feature.node.kubernetes.io/custom-rdma.capable: "true"}
network-operator:
  - feature.node.kubernetes.io/pci-15b3.present: "true"
    network.nvidia.com/operator.mofed.wait: "false"
{{- end }}

{{- define "ibpulse.affinity" -}}
{{- $alternatives := get (include "ibpulse.presets" . | fromYaml) .Values.nodePreset }}
{{- $affinity := deepCopy .Values.affinity }}
{{- if $alternatives }}
{{- if dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" false $affinity }}
{{- fail (printf "nodePreset: %s and a required affinity.nodeAffinity both choose nodes; set nodePreset=any, or choose by nodeSelector" .Values.nodePreset) }}
{{- end }}
{{- $terms := list }}
{{- range $alternatives }}
{{- $expressions := list }}
{{- range $label, $value := . }}
{{- $expressions = append $expressions (dict "key" $label "operator" "In" "values" (list $value)) }}
{{- end }}
{{- $terms = append $terms (dict "matchExpressions" $expressions) }}
{{- end }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $required) }}
{{- end }}
{{- with include "ibpulse.profileNodes" . | fromYamlArray }}
{{- $profile := . }}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list dict)) $affinity }}
{{- $terms := list }}
{{- /* the terms are alternatives: each needs the profile too */}}
{{- range $required.nodeSelectorTerms }}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $profile)) .) }}
{{- end }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms))) }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The volume for captures. */}}
{{- define "ibpulse.capturesVolume" -}}
{{- $captures := .Values.captures }}
{{- if eq $captures.volume "hostPath" -}}
hostPath:
  path: {{ $captures.hostPath }}
  type: Directory
{{- else if eq $captures.volume "existingClaim" -}}
persistentVolumeClaim:
  claimName: {{ $captures.existingClaim }}
{{- else if eq $captures.volume "ephemeral" -}}
ephemeral:
  volumeClaimTemplate:
    metadata:
      labels:
        {{- include "ibpulse.selectorLabels" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $captures.storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ $captures.size }}
{{- else -}}
emptyDir:
  sizeLimit: {{ $captures.size }}
{{- end }}
{{- end }}
