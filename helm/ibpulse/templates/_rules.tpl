{{/* Written by `make chart`: change the program in tools/, not this file. */}}
{{- define "ibpulse.rules" -}}
{{- $rule := .Values.prometheusRule }}
- name: ibpulse-nodes
  rules:
  - record: instance:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance) (
        (rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m]))
        * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"})
      )
  - record: instance:ibpulse_transmit_utilization:mean5m
    expr: |-
      sum by (cluster, job, instance) (rate(ibpulse_port_transmit_bytes_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
      / (max by (cluster, job, instance) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)
  - record: instance:ibpulse_receive_utilization:mean5m
    expr: |-
      sum by (cluster, job, instance) (rate(ibpulse_port_receive_bytes_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
      / (max by (cluster, job, instance) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)
  - record: instance:ibpulse_transmit_duty_cycle:ratio5m
    expr: |-
      sum by (cluster, job, instance) (rate(ibpulse_port_transmit_active_seconds_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
      / sum by (cluster, job, instance) (rate(ibpulse_port_observed_seconds_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
  - record: instance:ibpulse_receive_duty_cycle:ratio5m
    expr: |-
      sum by (cluster, job, instance) (rate(ibpulse_port_receive_active_seconds_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
      / sum by (cluster, job, instance) (rate(ibpulse_port_observed_seconds_total[5m]) * on (cluster, job, instance, device, port) group_left () max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"}))
  - record: instance:ibpulse_step_period_seconds:scored
    expr: |-
      ibpulse_node_step_period_seconds and on (cluster, job, instance) (ibpulse_node_step_period_score >= {{ dig "stepScore" "0.4" $rule.thresholds }})
  - record: instance:ibpulse_moe_saturated:ratio
    expr: |-
      rate(ibpulse_node_moe_saturated_seconds_total[{{ dig "moeWindow" "10m" $rule.thresholds }}])
  - record: instance:ibpulse_bandwidth_saturated:ratio
    expr: |-
      rate(ibpulse_node_bandwidth_saturated_seconds_total[{{ dig "saturatedWindow" "15m" $rule.thresholds }}])
  - record: instance:ibpulse_missed_ticks:ratio
    expr: |-
      rate(ibpulse_sampler_missed_ticks_total[{{ dig "missedWindow" "10m" $rule.thresholds }}])
      / (rate(ibpulse_sampler_ticks_total[{{ dig "missedWindow" "10m" $rule.thresholds }}]) + rate(ibpulse_sampler_missed_ticks_total[{{ dig "missedWindow" "10m" $rule.thresholds }}]))
  - record: instance:ibpulse_idle_rails:sum
    expr: |-
      sum by (cluster, job, instance) (ibpulse_port_rail_idle)
- name: ibpulse-fleet
  rules:
  - record: job:ibpulse_nodes:count
    expr: |-
      count by (cluster, job) (ibpulse_node_rails)
  - record: job_signature:ibpulse_nodes:count
    expr: |-
      count by (cluster, job, signature) (ibpulse_node_workload_signature == 1)
  - record: job:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job) (instance:ibpulse_bandwidth_bytes:rate5m)
  - record: job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m
    expr: |-
      sum by (cluster, job, le) (rate(ibpulse_node_bandwidth_utilization_ratio_bucket[5m]))
- name: ibpulse-jobs
  rules:
  - record: job_id:ibpulse_nodes:count
    expr: |-
      count by (cluster, job, job_id) (count by (cluster, job, instance, job_id) (ibpulse_port_job_info))
  - record: instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance, device, port, job_id) (
        (rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m]))
        * on (cluster, job, instance, device, port) group_left (job_id)
        (max by (cluster, job, instance, device, port, job_id) (ibpulse_port_job_info)
         and on (cluster, job, instance, device, port)
         count by (cluster, job, instance, device, port) (max by (cluster, job, instance, device, port, job_id, scheduler) (max_over_time(ibpulse_port_job_info[5m]))) == 1)
      )
  - record: instance_job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
  - record: job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
  - record: job_id:ibpulse_rail_fairness:ratio5m
    expr: |-
      job_id:ibpulse_bandwidth_bytes:rate5m ^ 2
      / (count by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
         * (sum by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m ^ 2) > 0))
  - record: instance_job_id:ibpulse_active_bandwidth_bytes:mean5m
    expr: |-
      max by (cluster, job, instance, job_id) (avg_over_time(ibpulse_job_active_bandwidth_bytes_per_second[5m]) and ibpulse_job_active_bandwidth_bytes_per_second)
  - record: job_id:ibpulse_active_bandwidth_bytes:median5m
    expr: |-
      quantile by (cluster, job, job_id) (0.5, instance_job_id:ibpulse_active_bandwidth_bytes:mean5m)
  - record: instance_job_id:ibpulse_active_bandwidth_to_median:ratio5m
    expr: |-
      instance_job_id:ibpulse_active_bandwidth_bytes:mean5m
      / on (cluster, job, job_id) group_left () job_id:ibpulse_active_bandwidth_bytes:median5m
  - record: job_id:ibpulse_step_period_seconds:median
    expr: |-
      quantile by (cluster, job, job_id) (0.5, max by (cluster, job, instance, job_id) (ibpulse_job_step_period_seconds > 0))
  - record: job_id:ibpulse_duty_cycle:mean
    expr: |-
      avg by (cluster, job, job_id) (max by (cluster, job, instance, job_id) (ibpulse_job_duty_cycle_ratio))
  - record: job_id:ibpulse_last_traffic_timestamp_seconds:max
    expr: |-
      max by (cluster, job, job_id) (ibpulse_job_last_traffic_timestamp_seconds)
  - record: instance_job_id:ibpulse_stopped_early:seconds
    expr: |-
      (job_id:ibpulse_last_traffic_timestamp_seconds:max
       - on (cluster, job, job_id) group_right () max by (cluster, job, instance, job_id) (ibpulse_job_last_traffic_timestamp_seconds))
      and on (cluster, job, job_id) time() - job_id:ibpulse_last_traffic_timestamp_seconds:max > 60
{{- if or $rule.alerts.IBPulseSustainedMoESaturation.enabled $rule.alerts.IBPulsePortSaturated.enabled $rule.alerts.IBPulseTrafficStalled.enabled $rule.alerts.IBPulseStepTimeRegressed.enabled }}
- name: ibpulse-traffic
  rules:
  {{- if $rule.alerts.IBPulseSustainedMoESaturation.enabled }}
  - alert: IBPulseSustainedMoESaturation
    expr: |-
      (instance:ibpulse_moe_saturated:ratio > {{ $rule.thresholds.moeShare }})
      and on (cluster, job, instance) (ibpulse_node_moe_saturated == 1)
    for: |-
      {{ $rule.thresholds.moeFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseSustainedMoESaturation.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The node's traffic looks like MoE training that saturates its rails.
      description: |-
        {{`{{ $labels.instance }}`}} spent {{`{{ $value | humanizePercentage }}`}} of the last {{ dig "moeWindow" "10m" $rule.thresholds }} in sustained MoE saturation: traffic that resembles mixture-of-experts training, almost always active, with peaks near the line rate. The resemblance is a guess from the shape; the duty cycle and the peaks are measured.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseSustainedMoESaturation.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulsePortSaturated.enabled }}
  - alert: IBPulsePortSaturated
    expr: |-
      rate(ibpulse_port_transmit_saturated_seconds_total[{{ dig "saturatedWindow" "15m" $rule.thresholds }}]) > {{ $rule.thresholds.saturatedShare }}
      or rate(ibpulse_port_receive_saturated_seconds_total[{{ dig "saturatedWindow" "15m" $rule.thresholds }}]) > {{ $rule.thresholds.saturatedShare }}
    for: |-
      {{ $rule.thresholds.saturatedFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulsePortSaturated.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A port is at its line rate almost all the time.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} was saturated for {{`{{ $value | humanizePercentage }}`}} of the last {{ dig "saturatedWindow" "15m" $rule.thresholds }}: the median of its 10 ms samples was near the line rate. More traffic would only wait longer.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulsePortSaturated.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseTrafficStalled.enabled }}
  - alert: IBPulseTrafficStalled
    expr: |-
      (ibpulse_node_duty_cycle_ratio{window="10s"} == 0)
      and on (cluster, job, instance) (count_over_time(instance:ibpulse_step_period_seconds:scored[{{ dig "stallMemory" "30m" $rule.thresholds }}]) > {{ dig "stallSteps" "10" $rule.thresholds }})
    for: |-
      {{ $rule.thresholds.stallFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseTrafficStalled.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        Regular training traffic has stopped.
      description: |-
        No rail of {{`{{ $labels.instance }}`}} has carried traffic for {{ $rule.thresholds.stallFor }} or longer, after regular steps within the last {{ dig "stallMemory" "30m" $rule.thresholds }}. The job hangs or has ended; check the scheduler.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseTrafficStalled.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseStepTimeRegressed.enabled }}
  - alert: IBPulseStepTimeRegressed
    expr: |-
      (
        quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[{{ dig "stepRecent" "10m" $rule.thresholds }}])
        / quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[{{ dig "stepMemory" "1h" $rule.thresholds }}] offset {{ dig "stepRecent" "10m" $rule.thresholds }})
      ) > {{ $rule.thresholds.stepSlower }} < {{ dig "stepOtherJob" "2" $rule.thresholds }}
    for: |-
      {{ $rule.thresholds.stepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseStepTimeRegressed.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The training step has become longer.
      description: |-
        The step of {{`{{ $labels.instance }}`}}, as seen in its traffic, took {{`{{ $value | humanize }}`}} times as long in the last {{ dig "stepRecent" "10m" $rule.thresholds }} as in the {{ dig "stepMemory" "1h" $rule.thresholds }} before.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseStepTimeRegressed.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- if or $rule.alerts.IBPulseRailIdle.enabled $rule.alerts.IBPulseRailSlow.enabled $rule.alerts.IBPulseRailMissing.enabled $rule.alerts.IBPulsePortDown.enabled $rule.alerts.IBPulsePortFlapping.enabled $rule.alerts.IBPulsePcieDegraded.enabled }}
- name: ibpulse-rails
  rules:
  {{- if $rule.alerts.IBPulseRailIdle.enabled }}
  - alert: IBPulseRailIdle
    expr: |-
      (ibpulse_port_rail_idle == 1)
      and on (cluster, job, instance, device, port) (ibpulse_port_up == 1)
    for: |-
      {{ $rule.thresholds.railIdleFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailIdle.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail is idle while its siblings carry traffic.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} has carried no traffic for {{ $rule.thresholds.railIdleFor }} while the other rails of its job, or of the node if no job is known, have. The link is up, or another alert would fire: check the job's device list, the routing, and whether the counters still count.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseRailIdle.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseRailSlow.enabled }}
  - alert: IBPulseRailSlow
    expr: |-
      ibpulse_port_rail_slow == 1
    for: |-
      {{ $rule.thresholds.railSlowFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailSlow.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail carries much less than its siblings.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} has carried less than three quarters of the median of the other rails of its job, or of the node if no job is known, for {{ $rule.thresholds.railSlowFor }}. In a collective, the slowest rail sets the pace.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseRailSlow.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseRailMissing.enabled }}
  - alert: IBPulseRailMissing
    expr: |-
      (max_over_time(ibpulse_node_rails[{{ dig "railMissingMemory" "1h" $rule.thresholds }}]) - ibpulse_node_rails) > 0
    for: |-
      {{ $rule.thresholds.railMissingFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailMissing.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail has disappeared from the node.
      description: |-
        {{`{{ $labels.instance }}`}} has {{`{{ $value }}`}} fewer rails than at some time within the last {{ dig "railMissingMemory" "1h" $rule.thresholds }}: a device has disappeared from the kernel's list or no longer has counters.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseRailMissing.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulsePortDown.enabled }}
  - alert: IBPulsePortDown
    expr: |-
      (ibpulse_port_up == 0)
      and on (cluster, job, instance, device, port) max by (cluster, job, instance, device, port) (ibpulse_port_info{rail="true"})
    for: |-
      {{ $rule.thresholds.portDownFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulsePortDown.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail's port is down.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} has not been ACTIVE for {{ $rule.thresholds.portDownFor }}.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulsePortDown.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulsePortFlapping.enabled }}
  - alert: IBPulsePortFlapping
    expr: |-
      changes(ibpulse_port_up[{{ dig "flapWindow" "15m" $rule.thresholds }}]) > {{ $rule.thresholds.flapChanges }}
    for: |-
      {{ dig "atOnce" "0s" $rule.thresholds }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulsePortFlapping.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A port keeps going up and down.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} changed between up and down {{`{{ $value }}`}} times in the last {{ dig "flapWindow" "15m" $rule.thresholds }}.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulsePortFlapping.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulsePcieDegraded.enabled }}
  - alert: IBPulsePcieDegraded
    expr: |-
      (ibpulse_device_pcie_bytes_per_second / ibpulse_device_pcie_max_bytes_per_second) < {{ dig "pcieRatio" "0.99" $rule.thresholds }}
    for: |-
      {{ $rule.thresholds.pcieFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulsePcieDegraded.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A device's PCIe link runs below the speed or width that both its ends support.
      description: |-
        The PCIe path of {{`{{ $labels.device }}`}} on {{`{{ $labels.instance }}`}} runs at {{`{{ $value | humanizePercentage }}`}} of its possible rate. A link trained at a lower speed or width: reseat the card, or check the slot.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulsePcieDegraded.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-node?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- if or $rule.alerts.IBPulseCounterSourceDegraded.enabled $rule.alerts.IBPulseIntervalLengthened.enabled $rule.alerts.IBPulseReadsFailing.enabled $rule.alerts.IBPulseCountersReset.enabled $rule.alerts.IBPulseDeviceQuarantined.enabled $rule.alerts.IBPulseSamplerMissingTicks.enabled $rule.alerts.IBPulseSamplerDown.enabled $rule.alerts.IBPulseExporterDown.enabled $rule.alerts.IBPulseCpuThrottled.enabled $rule.alerts.IBPulseRecorderFailing.enabled }}
- name: ibpulse-truth
  rules:
  {{- if $rule.alerts.IBPulseCounterSourceDegraded.enabled }}
  - alert: IBPulseCounterSourceDegraded
    expr: |-
      (ibpulse_port_effective_resolution_seconds / ibpulse_port_sampling_interval_seconds) > {{ $rule.thresholds.degradedFactor }}
    for: |-
      {{ $rule.thresholds.degradedFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseCounterSourceDegraded.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A port's counters are updated less often than they are read.
      description: |-
        The counters of port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} change only every {{`{{ $value | humanize }}`}} samples under traffic. Peaks, duty cycle and burstiness of this port are smeared over that time; bytes and means are correct.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseCounterSourceDegraded.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseIntervalLengthened.enabled }}
  - alert: IBPulseIntervalLengthened
    expr: |-
      ibpulse_device_interval_lengthened == 1
    for: |-
      {{ $rule.thresholds.lengthenedFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseIntervalLengthened.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A device is sampled less often because its reads are slow.
      description: |-
        Reads of {{`{{ $labels.device }}`}} on {{`{{ $labels.instance }}`}} take so long that ibpulse samples it at a longer interval than the other devices. Its numbers are correct at that longer interval.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseIntervalLengthened.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseReadsFailing.enabled }}
  - alert: IBPulseReadsFailing
    expr: |-
      (ibpulse_port_left_alone == 1)
      or (
        rate(ibpulse_sampler_read_errors_total[{{ dig "readErrorsWindow" "10m" $rule.thresholds }}])
        / on (cluster, job, instance) group_left () rate(ibpulse_sampler_ticks_total[{{ dig "readErrorsWindow" "10m" $rule.thresholds }}]) > {{ $rule.thresholds.readErrorsRatio }}
      )
    for: |-
      {{ $rule.thresholds.readErrorsFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseReadsFailing.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A port's counters cannot be read.
      description: |-
        Reads of the byte counters of port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} fail. Failed reads are missing data, never zeros.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseReadsFailing.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseCountersReset.enabled }}
  - alert: IBPulseCountersReset
    expr: |-
      increase(ibpulse_port_resets_total[{{ dig "resetWindow" "15m" $rule.thresholds }}]) > {{ $rule.thresholds.resetCount }}
    for: |-
      {{ dig "atOnce" "0s" $rule.thresholds }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseCountersReset.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A port's counters are reset repeatedly.
      description: |-
        The counters of port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} were reset {{`{{ $value | humanize }}`}} times in the last {{ dig "resetWindow" "15m" $rule.thresholds }}. Some tool clears them, or the firmware restarts; errors counted in between are lost to every reader.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseCountersReset.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseDeviceQuarantined.enabled }}
  - alert: IBPulseDeviceQuarantined
    expr: |-
      ibpulse_device_quarantined == 1
    for: |-
      {{ $rule.thresholds.quarantineFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseDeviceQuarantined.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A device hangs when it is read.
      description: |-
        A read of {{`{{ $labels.device }}`}} on {{`{{ $labels.instance }}`}} hung; the device has been quarantined (sampled by a separate process) for {{ $rule.thresholds.quarantineFor }}. The other devices are not affected.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseDeviceQuarantined.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseSamplerMissingTicks.enabled }}
  - alert: IBPulseSamplerMissingTicks
    expr: |-
      instance:ibpulse_missed_ticks:ratio > {{ $rule.thresholds.missedRatio }}
    for: |-
      {{ $rule.thresholds.missedFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseSamplerMissingTicks.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The sampler misses samples.
      description: |-
        {{`{{ $labels.instance }}`}} missed {{`{{ $value | humanizePercentage }}`}} of its samples in the last {{ dig "missedWindow" "10m" $rule.thresholds }}. Short peaks may be hidden in the missing samples.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseSamplerMissingTicks.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseSamplerDown.enabled }}
  - alert: IBPulseSamplerDown
    expr: |-
      ibpulse_sampler_heartbeat_age_seconds > {{ dig "heartbeatAge" "10" $rule.thresholds }}
    for: |-
      {{ $rule.thresholds.samplerFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseSamplerDown.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The sampler sends no heartbeat.
      description: |-
        The sampler of {{`{{ $labels.instance }}`}} has not sent a heartbeat for {{`{{ $value | humanizeDuration }}`}}; no counters are read.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseSamplerDown.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseExporterDown.enabled }}
  - alert: IBPulseExporterDown
    expr: |-
      up{job=~"{{ dig "jobs" $rule.jobs $rule.thresholds }}",job!~".*-gateway"} == 0
    for: |-
      {{ $rule.thresholds.exporterFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseExporterDown.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        An exporter cannot be scraped.
      description: |-
        Prometheus has not been able to scrape {{`{{ $labels.instance }}`}} for {{ $rule.thresholds.exporterFor }}.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseExporterDown.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseCpuThrottled.enabled }}
  - alert: IBPulseCpuThrottled
    expr: |-
      rate(ibpulse_cgroup_throttled_periods_total[10m]) > {{ $rule.thresholds.throttledRate }}
    for: |-
      {{ dig "throttledFor" "10m" $rule.thresholds }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseCpuThrottled.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A CPU limit throttles the exporter.
      description: |-
        The kernel throttles the exporter of {{`{{ $labels.instance }}`}} in {{`{{ $value | humanize }}`}} periods per second. Each costs samples: remove the CPU limit; a request is enough.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseCpuThrottled.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseRecorderFailing.enabled }}
  - alert: IBPulseRecorderFailing
    expr: |-
      increase(ibpulse_capture_errors_total[{{ dig "recorderWindow" "15m" $rule.thresholds }}]) > 0
    for: |-
      {{ dig "atOnce" "0s" $rule.thresholds }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRecorderFailing.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        Captures cannot be written.
      description: |-
        The flight recorder of {{`{{ $labels.instance }}`}} failed to write {{`{{ $value | humanize }}`}} captures in the last {{ dig "recorderWindow" "15m" $rule.thresholds }}. Its log gives the reason.
      runbook_url: |-
        {{ dig "runbooks" $rule.runbooks $rule.thresholds | trimSuffix "/" }}/IBPulseRecorderFailing.md
      dashboard_url: |-
        {{ dig "grafana" $rule.grafana $rule.thresholds | trimSuffix "/" }}/d/ibpulse-exporter?var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "ibpulse.retiredThresholds" -}}
jobs: Set prometheusRule.jobs instead.
runbooks: Set prometheusRule.runbooks instead.
grafana: Set prometheusRule.grafana instead.
moeWindow: Set prometheusRule.enabled=false, and load the rules that a checkout writes with your number by `python -m tools.grafana rules DIR --set moe_window=VALUE`.
saturatedWindow: Set prometheusRule.enabled=false, and load the rules that a checkout writes with your number by `python -m tools.grafana rules DIR --set saturated_window=VALUE`.
railMissingMemory: Set prometheusRule.alerts.IBPulseRailMissing.enabled=false, and put rules of your own under prometheusRule.extraGroups.
flapWindow: Set prometheusRule.alerts.IBPulsePortFlapping.enabled=false, and put rules of your own under prometheusRule.extraGroups.
resetWindow: Set prometheusRule.alerts.IBPulseCountersReset.enabled=false, and put rules of your own under prometheusRule.extraGroups.
stepScore: Set prometheusRule.enabled=false, and load the rules that a checkout writes with your number by `python -m tools.grafana rules DIR --set step_score=VALUE`.
stepRecent: Set prometheusRule.alerts.IBPulseStepTimeRegressed.enabled=false, and put rules of your own under prometheusRule.extraGroups.
stepMemory: Set prometheusRule.alerts.IBPulseStepTimeRegressed.enabled=false, and put rules of your own under prometheusRule.extraGroups.
stepOtherJob: Set prometheusRule.alerts.IBPulseStepTimeRegressed.enabled=false, and put rules of your own under prometheusRule.extraGroups.
stallMemory: Set prometheusRule.alerts.IBPulseTrafficStalled.enabled=false, and put rules of your own under prometheusRule.extraGroups.
stallSteps: Set prometheusRule.alerts.IBPulseTrafficStalled.enabled=false, and put rules of your own under prometheusRule.extraGroups.
readErrorsWindow: Set prometheusRule.alerts.IBPulseReadsFailing.enabled=false, and put rules of your own under prometheusRule.extraGroups.
missedWindow: Set prometheusRule.enabled=false, and load the rules that a checkout writes with your number by `python -m tools.grafana rules DIR --set missed_window=VALUE`.
heartbeatAge: Set prometheusRule.alerts.IBPulseSamplerDown.enabled=false, and put rules of your own under prometheusRule.extraGroups.
throttledFor: Set prometheusRule.alerts.IBPulseCpuThrottled.enabled=false, and put rules of your own under prometheusRule.extraGroups.
recorderWindow: Set prometheusRule.alerts.IBPulseRecorderFailing.enabled=false, and put rules of your own under prometheusRule.extraGroups.
atOnce: Set prometheusRule.alerts.IBPulsePortFlapping.enabled=false and alerts.IBPulseCountersReset.enabled=false and alerts.IBPulseRecorderFailing.enabled=false, and put rules of your own under prometheusRule.extraGroups.
pcieRatio: Set prometheusRule.alerts.IBPulsePcieDegraded.enabled=false, and put rules of your own under prometheusRule.extraGroups.
{{- end }}
