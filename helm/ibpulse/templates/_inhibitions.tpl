{{/* Written by `make chart` from tools/grafana/inhibitions.py. */}}

{{- define "ibpulse.inhibitions" -}}
inhibitRules:
- sourceMatch:
  - name: alertname
    matchType: =~
    value: KubeNodeNotReady|KubeNodeUnreachable
  - name: node
    matchType: '!='
    value: ''
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulse.+
  - name: severity
    matchType: '!='
    value: critical
  equal:
  - cluster
  - node
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkDown
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkWentDown|IBPulseRailIdle|IBPulseRailSlow|IBPulseAckTimeouts
  equal:
  - cluster
  - instance
  - device
  - port
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseRailTrainedDown
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseRailSlow
  equal:
  - cluster
  - instance
  - device
  - port
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulsePcieDegraded
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseRailSlow
  equal:
  - cluster
  - instance
  - device
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkDown|IBPulseRailMissing|IBPulseRailTrainedDown
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseNodeBehindItsJob
  equal:
  - cluster
  - instance
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseTrafficStalled
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseStepTimeRegressed|IBPulseSustainedMoESaturation
  equal:
  - cluster
  - job_id
{{- end }}
