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
    value: IBPulseExportersMissing
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseExporterDown
  equal:
  - cluster
  - job
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkDownInJob
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulsePortDown|IBPulseLinkWentDown|IBPulseRailIdle|IBPulseRailSlow|IBPulseAckTimeouts
  equal:
  - cluster
  - instance
  - device
  - port
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulsePortDown
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkWentDown|IBPulseRailIdle|IBPulseRailSlow|IBPulseCounterSourceDegraded
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
    value: IBPulseRailSlow|IBPulsePortSaturated
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
    value: IBPulseRailSlow|IBPulsePortSaturated
  equal:
  - cluster
  - instance
  - device
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseLinkDownInJob|IBPulseRailMissing|IBPulseRailTrainedDown
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
    value: IBPulseExporterDown|IBPulseSamplerDown|IBPulseNumbersStale
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseReadsFailing|IBPulseSamplerMissingTicks|IBPulseCounterSourceDegraded|IBPulseIntervalLengthened|IBPulseDeviceQuarantined|IBPulseCpuThrottled|IBPulseFabricNotice
  equal:
  - cluster
  - instance
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseSamplerDown
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseNumbersStale
  equal:
  - cluster
  - instance
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseDeviceQuarantined
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseIntervalLengthened|IBPulseCounterSourceDegraded
  equal:
  - cluster
  - instance
  - device
- sourceMatch:
  - name: alertname
    matchType: =~
    value: IBPulseCpuThrottled
  targetMatch:
  - name: alertname
    matchType: =~
    value: IBPulseSamplerMissingTicks
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
  - job
  - job_id
{{- end }}
