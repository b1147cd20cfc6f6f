{{/* Written by `make chart`: change the program in tools/, not this file. */}}
{{- define "ibpulse.rules" -}}
{{- $rule := .Values.prometheusRule }}
{{- $shards := int $rule.shards }}
{{- $jobs := $rule.jobs }}
{{- if eq $jobs ".*ibpulse.*" }}
{{- $name := include "ibpulse.name" . }}
{{- if not (contains "ibpulse" $name) }}{{ $jobs = printf ".*(ibpulse|%s).*" $name }}{{ end }}
{{- end }}
{{- range $shard := until (min $shards 8 | int) }}
- name: ibpulse-days{{ if gt $shards 1 }}-{{ add1 $shard }}{{ end }}
  interval: 5m
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  {{- if eq (mod 0 $shards) $shard }}
  - record: instance:ibpulse_errors:increase5m
    expr: |-
      sum by (cluster, job, instance, node) (
        clamp_min(max by (cluster, job, instance, node, device, port, counter) (label_replace({__name__=~"ibpulse_symbol_error_total|ibpulse_link_error_recovery_total|ibpulse_port_errors_received_total|ibpulse_packet_sequence_errors_total|ibpulse_local_ack_timeout_errors_total|ibpulse_out_of_buffer_drops_total|ibpulse_rx_icrc_encapsulated_errors_total"}, "counter", "$1", "__name__", "(.+)")) - on (cluster, job, instance, node, device, port, counter) max by (cluster, job, instance, node, device, port, counter) (label_replace(last_over_time({__name__=~"ibpulse_symbol_error_total|ibpulse_link_error_recovery_total|ibpulse_port_errors_received_total|ibpulse_packet_sequence_errors_total|ibpulse_local_ack_timeout_errors_total|ibpulse_out_of_buffer_drops_total|ibpulse_rx_icrc_encapsulated_errors_total"}[15m] offset 5m), "counter", "$1", "__name__", "(.+)")), 0)
      )
  {{- end }}
  {{- if eq (mod 1 $shards) $shard }}
  - record: instance:ibpulse_errors:increase1d
    expr: |-
      max by (cluster, job, instance, node) (sum_over_time(instance:ibpulse_errors:increase5m[1d]))
  {{- end }}
  {{- if eq (mod 2 $shards) $shard }}
  - record: instance:ibpulse_link_events:increase5m
    expr: |-
      sum by (cluster, job, instance, node) (
        clamp_min(max by (cluster, job, instance, node, device, port) (ibpulse_link_downed_total) - on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (last_over_time(ibpulse_link_downed_total[15m] offset 5m)), 0)
        or on (cluster, job, instance, node, device, port) floor(sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_port_state_changes_total[5m]))) / 2)
      )
  {{- end }}
  {{- if eq (mod 3 $shards) $shard }}
  - record: instance:ibpulse_link_events:increase1d
    expr: |-
      max by (cluster, job, instance, node) (sum_over_time(instance:ibpulse_link_events:increase5m[1d]))
  {{- end }}
  {{- if eq (mod 4 $shards) $shard }}
  - record: instance:ibpulse_expected_rails:max
    expr: |-
      max by (cluster, job, instance, node) (ibpulse_node_expected_rails)
  {{- end }}
  {{- if eq (mod 5 $shards) $shard }}
  - record: instance:ibpulse_expected_rails:max1d
    expr: |-
      max by (cluster, job, instance, node) (max_over_time(instance:ibpulse_expected_rails:max[1d]))
  {{- end }}
  {{- if eq (mod 6 $shards) $shard }}
  - record: instance:ibpulse_ports:max
    expr: |-
      count by (cluster, job, instance, node) (count by (cluster, job, instance, node, device, port) (ibpulse_port_info))
  {{- end }}
  {{- if eq (mod 7 $shards) $shard }}
  - record: instance:ibpulse_ports:max1d
    expr: |-
      max by (cluster, job, instance, node) (max_over_time(instance:ibpulse_ports:max[1d]))
  {{- end }}
{{- end }}
- name: ibpulse-pace
  interval: {{ $rule.alertInterval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  - record: job_id:ibpulse_active_bandwidth_bytes:median
    expr: |-
      quantile by (cluster, job, job_id) (0.5, max by (cluster, job, instance, node, job_id) (ibpulse_job_active_bandwidth_bytes_per_second))
  - record: instance_job_id:ibpulse_active_bandwidth_to_median:ratio
    expr: |-
      max by (cluster, job, instance, node, job_id) (ibpulse_job_active_bandwidth_bytes_per_second)
      / on (cluster, job, job_id) group_left () job_id:ibpulse_active_bandwidth_bytes:median
  - record: job_id:ibpulse_step_period_seconds:median
    expr: |-
      quantile by (cluster, job, job_id) (0.5, max by (cluster, job, instance, node, job_id) (ibpulse_job_step_period_seconds > 0))
  - record: job_id:ibpulse_step_to_usual:ratio
    expr: |-
      job_id:ibpulse_step_period_seconds:median / quantile_over_time(0.95, job_id:ibpulse_step_period_seconds:median[1h] offset 10m)
      and count_over_time(job_id:ibpulse_step_period_seconds:median[1h:1m] offset 10m) > 20
{{- range $shard := until (min $shards 18 | int) }}
- name: ibpulse-nodes{{ if gt $shards 1 }}-{{ add1 $shard }}{{ end }}
  interval: {{ $rule.interval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  {{- if eq (mod 0 $shards) $shard }}
  - record: instance:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
  {{- end }}
  {{- if eq (mod 1 $shards) $shard }}
  - record: instance:ibpulse_transmit_utilization:mean5m
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_transmit_bytes_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
      / on (cluster, job, instance, node) (max by (cluster, job, instance, node) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)
  {{- end }}
  {{- if eq (mod 2 $shards) $shard }}
  - record: instance:ibpulse_receive_utilization:mean5m
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_receive_bytes_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
      / on (cluster, job, instance, node) (max by (cluster, job, instance, node) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)
  {{- end }}
  {{- if eq (mod 3 $shards) $shard }}
  - record: instance:ibpulse_transmit_duty_cycle:ratio5m
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_transmit_active_seconds_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
      / sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_observed_seconds_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
  {{- end }}
  {{- if eq (mod 4 $shards) $shard }}
  - record: instance:ibpulse_receive_duty_cycle:ratio5m
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_receive_active_seconds_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
      / sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_port_observed_seconds_total[5m])) * on (cluster, job, instance, node, device, port) group_left () max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}))
  {{- end }}
  {{- if eq (mod 5 $shards) $shard }}
  - record: instance:ibpulse_line_rate_bytes:sum
    expr: |-
      max by (cluster, job, instance, node) (ibpulse_node_line_rate_bytes_per_second)
  {{- end }}
  {{- if eq (mod 6 $shards) $shard }}
  - record: instance:ibpulse_peak_utilization:ratio1m
    expr: |-
      max by (cluster, job, instance, node) (ibpulse_node_bandwidth_peak_utilization_ratio{window="1m"})
  {{- end }}
  {{- if eq (mod 7 $shards) $shard }}
  - record: instance:ibpulse_step_period_seconds:scored
    expr: |-
      max by (cluster, job, instance, node) (ibpulse_node_step_period_seconds)
      and on (cluster, job, instance, node) (max by (cluster, job, instance, node) (ibpulse_node_step_period_score) >= 0.4)
  {{- end }}
  {{- if eq (mod 8 $shards) $shard }}
  - record: instance:ibpulse_moe_saturated:ratio
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, pod) (rate(ibpulse_node_moe_saturated_seconds_total[10m])))
  {{- end }}
  {{- if eq (mod 9 $shards) $shard }}
  - record: instance:ibpulse_bandwidth_saturated:ratio
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, pod) (rate(ibpulse_node_bandwidth_saturated_seconds_total[15m])))
  {{- end }}
  {{- if eq (mod 10 $shards) $shard }}
  - record: instance_device_port:ibpulse_congested:bool
    expr: |-
      group by (cluster, job, instance, node, device, port) (
        sum by (cluster, job, instance, node, device, port) (rate(ibpulse_port_transmit_limit_seconds_total{sign=~"path|receiver|loss"}[10m])) > {{ $rule.thresholds.congestionStalled }}
        or avg_over_time(ibpulse_port_transmit_stalled_ratio[10m]) > {{ $rule.thresholds.congestionStalled }}
        or rate(ibpulse_rp_cnp_packets_handled_total[10m]) > {{ $rule.thresholds.congestionMarks }}
        or rate(ibpulse_np_ecn_marked_roce_packets_received_total[10m]) > {{ $rule.thresholds.congestionMarks }}
        or rate(ibpulse_packet_sequence_errors_total[10m]) > 1
      )
  {{- end }}
  {{- if eq (mod 11 $shards) $shard }}
  - record: instance:ibpulse_used:bool
    expr: |-
      max by (cluster, job, instance, node) (max_over_time(ibpulse_node_jobs[30m]) > bool 0)
      or on (cluster, job, instance, node)
      max by (cluster, job, instance, node) (changes(ibpulse_node_last_traffic_timestamp_seconds[30m]) > bool 0)
  {{- end }}
  {{- if eq (mod 12 $shards) $shard }}
  - record: instance:ibpulse_idle_rails:sum
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_idle))
  {{- end }}
  {{- if eq (mod 13 $shards) $shard }}
  - record: instance:ibpulse_slow_rails:sum
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_slow))
  {{- end }}
  {{- if eq (mod 14 $shards) $shard }}
  - record: instance:ibpulse_trained_down_rails:sum
    expr: |-
      sum by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port) (ibpulse_port_trained_down))
  {{- end }}
  {{- if eq (mod 15 $shards) $shard }}
  - record: instance:ibpulse_down_rails:sum
    expr: |-
      count by (cluster, job, instance, node) (max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}) and on (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_up) == 0))
      or on (cluster, job, instance, node) 0 * max by (cluster, job, instance, node) (ibpulse_node_rails)
  {{- end }}
  {{- if eq (mod 16 $shards) $shard }}
  - record: instance:ibpulse_missing_rails:sum
    expr: |-
      clamp_min(
        (
          (max by (cluster, job, instance, node) (last_over_time(instance:ibpulse_expected_rails:max1d[10m]))
           unless on (cluster, job, instance, node) count by (cluster, job, instance, node) (count by (cluster, job, instance, node, device, port) (ibpulse_port_info)) >= on (cluster, job, instance, node) max by (cluster, job, instance, node) (last_over_time(instance:ibpulse_ports:max1d[10m])))
          or on (cluster, job, instance, node) max by (cluster, job, instance, node) (ibpulse_node_expected_rails)
        )
        - on (cluster, job, instance, node) max by (cluster, job, instance, node) (ibpulse_node_rails), 0
      )
  {{- end }}
  {{- if eq (mod 17 $shards) $shard }}
  - record: instance:ibpulse_bad_rails:sum
    expr: |-
      (
        count by (cluster, job, instance, node) (
          max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_idle) == 1
          or max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_slow) == 1
          or max by (cluster, job, instance, node, device, port) (ibpulse_port_trained_down) == 1
          or (max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}) and on (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_up) == 0))
        )
        or on (cluster, job, instance, node) 0 * max by (cluster, job, instance, node) (ibpulse_node_rails)
      )
      + on (cluster, job, instance, node) (instance:ibpulse_missing_rails:sum or on (cluster, job, instance, node) 0 * max by (cluster, job, instance, node) (ibpulse_node_rails))
  {{- end }}
{{- end }}
- name: ibpulse-fleet
  interval: {{ $rule.interval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  - record: job:ibpulse_nodes:count
    expr: |-
      count by (cluster, job) (max by (cluster, job, instance, node) (ibpulse_node_rails) > 0 or max by (cluster, job, instance, node) (ibpulse_node_expected_rails) > 0)
  - record: job_signature:ibpulse_nodes:count
    expr: |-
      count by (cluster, job, signature) (max by (cluster, job, instance, node, signature) (ibpulse_node_workload_signature) == 1)
  - record: job:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job) (instance:ibpulse_bandwidth_bytes:rate5m)
  - record: job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m
    expr: |-
      sum by (cluster, job, le) (
        max by (cluster, job, instance, node, pod, le) (rate(ibpulse_node_bandwidth_utilization_ratio_bucket[5m]))
      )
  - record: job:ibpulse_bad_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_bad_rails:sum)
  - record: job:ibpulse_down_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_down_rails:sum)
  - record: job:ibpulse_idle_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_idle_rails:sum)
  - record: job:ibpulse_missing_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_missing_rails:sum)
  - record: job:ibpulse_slow_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_slow_rails:sum)
  - record: job:ibpulse_trained_down_rails:sum
    expr: |-
      sum by (cluster, job) (instance:ibpulse_trained_down_rails:sum)
  - record: job:ibpulse_bad_nodes:count
    expr: |-
      count by (cluster, job) (instance:ibpulse_bad_rails:sum > 0)
      or on (cluster, job) 0 * job:ibpulse_nodes:count
  - record: job:ibpulse_link_events:increase1d
    expr: |-
      sum by (cluster, job) (last_over_time(instance:ibpulse_link_events:increase1d[10m]))
  - record: job:ibpulse_errors:increase1d
    expr: |-
      sum by (cluster, job) (last_over_time(instance:ibpulse_errors:increase1d[10m]))
  - record: job:ibpulse_exporters:count
    expr: |-
      count by (cluster, job) (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}))
  - record: job:ibpulse_exporters_up:count
    expr: |-
      sum by (cluster, job) (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}))
  - record: job:ibpulse_silent_exporters:ratio
    expr: |-
      count by (cluster, job) (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}) == 0{{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}) / on (cluster, job) count by (cluster, job) (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}))
  - record: cluster:ibpulse_missing_nodes:count
    expr: |-
      count by (cluster) (
        (max by (cluster, node) ({{ $rule.expectedNodes }}) and on (cluster) up{job=~"{{ $jobs }}", job!~".*-gateway"}){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
        unless on (cluster, node) max by (cluster, node) (
          (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway", node!=""}) == 1)
          or (label_replace(max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway", node=""}), "node", "$1", "instance", "([^:]+).*") == 1)
        )
      )
      or on (cluster) 0 * count by (cluster) ((max by (cluster, node) ({{ $rule.expectedNodes }}) and on (cluster) up{job=~"{{ $jobs }}", job!~".*-gateway"}){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }})
  - record: cluster:ibpulse_missing_nodes:ratio
    expr: |-
      cluster:ibpulse_missing_nodes:count / on (cluster) count by (cluster) ((max by (cluster, node) ({{ $rule.expectedNodes }}) and on (cluster) up{job=~"{{ $jobs }}", job!~".*-gateway"}){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }})
- name: ibpulse-jobs
  interval: {{ $rule.interval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  - record: job_id:ibpulse_nodes:count
    expr: |-
      count by (cluster, job, job_id) (count by (cluster, job, instance, node, job_id) (ibpulse_port_job_info))
  - record: instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance, node, device, port, job_id) (
        max by (cluster, job, instance, node, device, port, pod) (
          rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m])
        )
        * on (cluster, job, instance, node, device, port) group_left (job_id)
        (max by (cluster, job, instance, node, device, port, job_id) (ibpulse_port_job_info)
         and on (cluster, job, instance, node, device, port)
         count by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, job_id, scheduler) (max_over_time(ibpulse_port_job_info[5m]))) == 1)
      )
  - record: instance_job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, instance, node, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
  - record: job_id:ibpulse_bandwidth_bytes:rate5m
    expr: |-
      sum by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
  - record: job_id:ibpulse_rail_fairness:ratio5m
    expr: |-
      job_id:ibpulse_bandwidth_bytes:rate5m ^ 2
      / (count by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)
         * (sum by (cluster, job, job_id) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m ^ 2) > 0))
  - record: job_id:ibpulse_duty_cycle:mean
    expr: |-
      avg by (cluster, job, job_id) (max by (cluster, job, instance, node, job_id) (ibpulse_job_duty_cycle_ratio))
  - record: job_id:ibpulse_last_traffic_timestamp_seconds:max
    expr: |-
      max by (cluster, job, job_id) (ibpulse_job_last_traffic_timestamp_seconds)
  - record: instance_job_id:ibpulse_stopped_early:seconds
    expr: |-
      (job_id:ibpulse_last_traffic_timestamp_seconds:max
       - on (cluster, job, job_id) group_right () max by (cluster, job, instance, node, job_id) (ibpulse_job_last_traffic_timestamp_seconds))
      and on (cluster, job, job_id) time() - job_id:ibpulse_last_traffic_timestamp_seconds:max > 60
- name: ibpulse-boards
  interval: {{ $rule.interval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  - record: instance_device_port:ibpulse_bad_rail:state
    expr: |-
      4 * group by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"}) and on (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_up) == 0))
      or on (cluster, job, instance, node, device, port) 3 * group by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_trained_down) == 1)
      or on (cluster, job, instance, node, device, port) 2 * group by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_idle) == 1)
      or on (cluster, job, instance, node, device, port) 1 * group by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_slow) == 1)
{{- if or ($rule.alerts.IBPulseTrafficStalled.enabled) ($rule.alerts.IBPulseSustainedMoESaturation.enabled) ($rule.alerts.IBPulseStepTimeRegressed.enabled) ($rule.alerts.IBPulseNodeBehindItsJob.enabled) }}
- name: ibpulse-traffic
  interval: {{ $rule.alertInterval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  {{- if $rule.alerts.IBPulseTrafficStalled.enabled }}
  - alert: IBPulseTrafficStalled
    expr: |-
      min by (cluster, job_id) (
        max by (cluster, job, instance, node, job_id) (ibpulse_job_stall)
        or max by (cluster, job, instance, node, job_id) (last_over_time(ibpulse_job_stall[4m]) == 1)
        unless on (cluster, job, instance, node) (max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}) == 1)
      ) == 1
    for: 0s
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseTrafficStalled.severity }}
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A job's traffic has stopped, and the job is still there.
      description: |-
        No node of job {{`{{ $labels.job_id }}`}} moves its traffic.{{`{{ range query (printf "topk(3, instance_job_id:ibpulse_stopped_early:seconds{job_id='%s'} != 0)" $labels.job_id) }}`}} {{`{{ .Labels.instance }}`}} stopped {{`{{ .Value | humanizeDuration }}`}} before the last node.{{`{{ end }}`}} First step: open the job's page at the gateway, then the log of the node that stopped first.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseTrafficStalled.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-job?var-cluster={{`{{ $labels.cluster }}`}}&var-job_id={{`{{ $labels.job_id }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseSustainedMoESaturation.enabled }}
  - alert: IBPulseSustainedMoESaturation
    expr: |-
      avg by (cluster, job, job_id) (avg_over_time(ibpulse_job_moe_saturated[10m]) and ibpulse_job_moe_saturated and ibpulse_job_moe_saturated offset 10m) > {{ $rule.thresholds.moeShare }}
      or max by (cluster, job, instance, node) (avg_over_time(ibpulse_node_moe_saturated[10m]) and ibpulse_node_moe_saturated and ibpulse_node_moe_saturated offset 10m unless on (cluster, job, instance, node) ibpulse_job_moe_saturated) > {{ $rule.thresholds.moeShare }}
    for: |-
      {{ $rule.thresholds.moeFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseSustainedMoESaturation.severity }}
      component: job
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A job's traffic looks like MoE training that saturates its rails.
      description: |-
        {{`{{ $labels.instance | or $labels.job_id }}`}} (a job, or a node whose job is unknown) spent {{`{{ $value | humanizePercentage }}`}} of the last 10m in sustained MoE saturation: traffic that resembles mixture-of-experts training, almost always active, with peaks near the line rate. The resemblance is a guess from the shape; the duty cycle and the peaks are measured. First step: none is needed; a capture shows how the bursts of the experts overlap.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseSustainedMoESaturation.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-fleet?var-cluster={{`{{ $labels.cluster }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseStepTimeRegressed.enabled }}
  - alert: IBPulseStepTimeRegressed
    expr: |-
      job_id:ibpulse_step_to_usual:ratio > {{ $rule.thresholds.stepSlower }} < 1.9
    for: |-
      {{ $rule.thresholds.stepFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseStepTimeRegressed.severity }}
      component: job
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The training step of a job has become longer.
      description: |-
        The step of job {{`{{ $labels.job_id }}`}}, as seen in its traffic, takes {{`{{ $value | humanize }}`}} times as long as nearly all steps of the 1h before. First step: open the job board and look for a slower node.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseStepTimeRegressed.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-job?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-job_id={{`{{ $labels.job_id }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if $rule.alerts.IBPulseNodeBehindItsJob.enabled }}
  - alert: IBPulseNodeBehindItsJob
    expr: |-
      (
        instance_job_id:ibpulse_active_bandwidth_to_median:ratio < {{ $rule.thresholds.behindRatio }}
        and on (cluster, job, job_id) count by (cluster, job, job_id) (instance_job_id:ibpulse_active_bandwidth_to_median:ratio < {{ $rule.thresholds.behindRatio }}) / on (cluster, job, job_id) job_id:ibpulse_nodes:count <= 0.25
        and instance_job_id:ibpulse_active_bandwidth_to_median:ratio offset 5m
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.behindFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseNodeBehindItsJob.severity }}
      component: job
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A node sends more slowly than the other nodes of its job.
      description: |-
        While active, {{`{{ $labels.instance }}`}} carries {{`{{ $value | humanizePercentage }}`}} of what the median node of job {{`{{ $labels.job_id }}`}} carries. In a collective, the slowest node sets the pace. First step: compare its rails, then its GPUs.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseNodeBehindItsJob.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- range $shard := until $shards }}
{{- if or (and (eq (mod 0 $shards) $shard) $rule.alerts.IBPulseLinkDown.enabled) (and (eq (mod 1 $shards) $shard) $rule.alerts.IBPulseLinkDown.enabled) (and (eq (mod 2 $shards) $shard) $rule.alerts.IBPulseRailMissing.enabled) (and (eq (mod 3 $shards) $shard) $rule.alerts.IBPulseRailMissing.enabled) (and (eq (mod 4 $shards) $shard) $rule.alerts.IBPulseLinkWentDown.enabled) (and (eq (mod 5 $shards) $shard) $rule.alerts.IBPulseRailTrainedDown.enabled) (and (eq (mod 6 $shards) $shard) $rule.alerts.IBPulseSymbolErrors.enabled) (and (eq (mod 7 $shards) $shard) $rule.alerts.IBPulseAckTimeouts.enabled) (and (eq (mod 8 $shards) $shard) $rule.alerts.IBPulseRailIdle.enabled) (and (eq (mod 9 $shards) $shard) $rule.alerts.IBPulseRailSlow.enabled) (and (eq (mod 10 $shards) $shard) $rule.alerts.IBPulsePcieDegraded.enabled) }}
- name: ibpulse-rails{{ if gt $shards 1 }}-{{ add1 $shard }}{{ end }}
  interval: {{ $rule.alertInterval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  {{- if and (eq (mod 0 $shards) $shard) $rule.alerts.IBPulseLinkDown.enabled }}
  - alert: IBPulseLinkDown
    expr: |-
      (
        sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_port_down_seconds_total[3m]))) > {{ $rule.thresholds.downSeconds }}
        and on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"})
      )
      and on (cluster, job, instance, node) (instance:ibpulse_used:bool == 1){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 0s
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseLinkDown.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail was down for longer than a job survives.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} was down for {{`{{ $value | humanize }}`}} s of the last 3m. {{`{{ with query (printf "min(ibpulse_port_up{cluster='%s',instance='%s',device='%s',port='%s'})" $labels.cluster $labels.instance $labels.device $labels.port) }}`}}{{`{{ if eq (. | first | value) 1.0 }}`}}The link is up again.{{`{{ else }}`}}The link is still down.{{`{{ end }}`}}{{`{{ end }}`}} Critical if the node has or recently had a job. First step: see whether the job still has traffic.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseLinkDown.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 1 $shards) $shard) $rule.alerts.IBPulseLinkDown.enabled }}
  - alert: IBPulseLinkDown
    expr: |-
      (
        sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_port_down_seconds_total[3m]))) > {{ $rule.thresholds.downSeconds }}
        and on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"})
      )
      unless on (cluster, job, instance, node) (instance:ibpulse_used:bool == 1){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 0s
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseLinkDown.otherwise }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail was down for longer than a job survives.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} was down for {{`{{ $value | humanize }}`}} s of the last 3m. {{`{{ with query (printf "min(ibpulse_port_up{cluster='%s',instance='%s',device='%s',port='%s'})" $labels.cluster $labels.instance $labels.device $labels.port) }}`}}{{`{{ if eq (. | first | value) 1.0 }}`}}The link is up again.{{`{{ else }}`}}The link is still down.{{`{{ end }}`}}{{`{{ end }}`}} Critical if the node has or recently had a job. First step: see whether the job still has traffic.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseLinkDown.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 2 $shards) $shard) $rule.alerts.IBPulseRailMissing.enabled }}
  - alert: IBPulseRailMissing
    expr: |-
      (
        max by (cluster, job, instance, node) (ibpulse_node_expected_rails) - on (cluster, job, instance, node) max by (cluster, job, instance, node) (ibpulse_node_rails) > 0
        or on (cluster, job, instance, node) instance:ibpulse_missing_rails:sum > 0
      )
      and on (cluster, job, instance, node) (instance:ibpulse_used:bool == 1){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.railMissingFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailMissing.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A node has fewer rails than it should have.
      description: |-
        {{`{{ $labels.instance }}`}} lacks {{`{{ $value }}`}} of its rails{{`{{ range query (printf "max by (device, port) (ibpulse_port_problem{problem='disappeared',cluster='%s',instance='%s'})" $labels.cluster $labels.instance) }}`}}; {{`{{ .Labels.device }}`}}:{{`{{ .Labels.port }}`}} disappeared{{`{{ end }}`}}. First step: `dmesg` and `lspci` on the node.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseRailMissing.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 3 $shards) $shard) $rule.alerts.IBPulseRailMissing.enabled }}
  - alert: IBPulseRailMissing
    expr: |-
      (
        max by (cluster, job, instance, node) (ibpulse_node_expected_rails) - on (cluster, job, instance, node) max by (cluster, job, instance, node) (ibpulse_node_rails) > 0
        or on (cluster, job, instance, node) instance:ibpulse_missing_rails:sum > 0
      )
      unless on (cluster, job, instance, node) (instance:ibpulse_used:bool == 1){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.railMissingFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailMissing.otherwise }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A node has fewer rails than it should have.
      description: |-
        {{`{{ $labels.instance }}`}} lacks {{`{{ $value }}`}} of its rails{{`{{ range query (printf "max by (device, port) (ibpulse_port_problem{problem='disappeared',cluster='%s',instance='%s'})" $labels.cluster $labels.instance) }}`}}; {{`{{ .Labels.device }}`}}:{{`{{ .Labels.port }}`}} disappeared{{`{{ end }}`}}. First step: `dmesg` and `lspci` on the node.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseRailMissing.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 4 $shards) $shard) $rule.alerts.IBPulseLinkWentDown.enabled }}
  - alert: IBPulseLinkWentDown
    expr: |-
      (
        sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_port_state_changes_total[5m]))) >= {{ $rule.thresholds.linkChanges }}
        and on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"})
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 0s
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseLinkWentDown.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The link of a rail went down and came back.
      description: |-
        The link of port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} changed its state {{`{{ $value | printf "%.0f" }}`}} times in the last 5m. A collective that uses it at that moment fails or waits. First step: count the drops of this cable today.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseLinkWentDown.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 5 $shards) $shard) $rule.alerts.IBPulseRailTrainedDown.enabled }}
  - alert: IBPulseRailTrainedDown
    expr: |-
      (
        max by (cluster, job, instance, node, device, port) (ibpulse_port_trained_down) == 1
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 30s
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailTrainedDown.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail's link runs at a lower rate than other rails of its make.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} is ACTIVE, but slower than other rails of the same make on its node{{`{{ range query (printf "8e-9 * max(ibpulse_port_rate_bytes_per_second{cluster='%s',instance='%s',device='%s',port='%s'})" $labels.cluster $labels.instance $labels.device $labels.port) }}`}}: {{`{{ .Value | printf "%.0f" }}`}} Gb/s{{`{{ end }}`}}{{`{{ range query (printf "8e-9 * max(ibpulse_port_rate_bytes_per_second{cluster='%s',instance='%s'})" $labels.cluster $labels.instance) }}`}}, the fastest has {{`{{ .Value | printf "%.0f" }}`}} Gb/s{{`{{ end }}`}}. First step: reseat or replace the cable when the node is free.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseRailTrainedDown.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 6 $shards) $shard) $rule.alerts.IBPulseSymbolErrors.enabled }}
  - alert: IBPulseSymbolErrors
    expr: |-
      (
        sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (rate(ibpulse_symbol_error_total[1h])))
        / on (cluster, job, instance, node, device, port) (8 * max by (cluster, job, instance, node, device, port) (ibpulse_port_rate_bytes_per_second)) * 1e15 > {{ $rule.thresholds.symbolErrors }}
        and on (cluster, job, instance, node, device, port) sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_symbol_error_total[15m]))) > 0
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 15m
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseSymbolErrors.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A link has too many symbol errors for the bytes that it can carry.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} counts {{`{{ $value | humanize }}`}} symbol errors per 10^15 bits. First step: clean, reseat or replace the cable when the node is free.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseSymbolErrors.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 7 $shards) $shard) $rule.alerts.IBPulseAckTimeouts.enabled }}
  - alert: IBPulseAckTimeouts
    expr: |-
      (
        sum by (cluster, job, instance, node, device, port) (max by (cluster, job, instance, node, device, port, pod) (increase(ibpulse_local_ack_timeout_errors_total[5m]))) > {{ $rule.thresholds.ackTimeouts }}
        and on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (ibpulse_port_info{rail="true"})
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: 0s
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseAckTimeouts.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail gets no acknowledgements from its peers.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} waited in vain for {{`{{ $value | printf "%.0f" }}`}} acknowledgements in the last 5m: packets were lost, a path is dead, or a peer's process was killed. First step: see whether other nodes have it too.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseAckTimeouts.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 8 $shards) $shard) $rule.alerts.IBPulseRailIdle.enabled }}
  - alert: IBPulseRailIdle
    expr: |-
      (
        max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_idle) == 1
        and on (cluster, job, instance, node, device, port) max by (cluster, job, instance, node, device, port) (ibpulse_port_up) == 1
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.railIdleFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailIdle.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail is idle while its siblings carry traffic.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} has carried no traffic for {{ $rule.thresholds.railIdleFor }} while the other rails of its job, or of the node if no job is known, have, and its link is up. First step: check the job's device list (NCCL_IB_HCA).
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseRailIdle.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 9 $shards) $shard) $rule.alerts.IBPulseRailSlow.enabled }}
  - alert: IBPulseRailSlow
    expr: |-
      (
        max by (cluster, job, instance, node, device, port) (ibpulse_port_rail_slow) == 1
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.railSlowFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseRailSlow.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A rail carries much less than its siblings.
      description: |-
        Port {{`{{ $labels.device }}`}}:{{`{{ $labels.port }}`}} on {{`{{ $labels.instance }}`}} has carried less than three quarters of the median of the other rails of its job, or of the node if no job is known, for {{ $rule.thresholds.railSlowFor }}{{`{{ range query (printf "max(1e-9 * (rate(ibpulse_port_transmit_bytes_total{cluster='%s',instance='%s',device='%s',port='%s'}[5m]) + rate(ibpulse_port_receive_bytes_total{cluster='%s',instance='%s',device='%s',port='%s'}[5m])))" $labels.cluster $labels.instance $labels.device $labels.port $labels.cluster $labels.instance $labels.device $labels.port) }}`}}; in the last 5m {{`{{ .Value | printf "%.1f" }}`}} GB/s{{`{{ end }}`}}{{`{{ range query (printf "quantile(0.5, 1e-9 * (rate(ibpulse_port_transmit_bytes_total{cluster='%s',instance='%s'}[5m]) + rate(ibpulse_port_receive_bytes_total{cluster='%s',instance='%s'}[5m])) and on (device, port) ibpulse_port_info{rail='true',cluster='%s',instance='%s'})" $labels.cluster $labels.instance $labels.cluster $labels.instance $labels.cluster $labels.instance) }}`}}, where the median rail of the node carried {{`{{ .Value | printf "%.1f" }}`}}{{`{{ end }}`}}. In a collective, the slowest rail sets the pace. First step: compare its link rate, PCIe rate and congestion counters with those of the others.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseRailSlow.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
  {{- if and (eq (mod 10 $shards) $shard) $rule.alerts.IBPulsePcieDegraded.enabled }}
  - alert: IBPulsePcieDegraded
    expr: |-
      (
        max by (cluster, job, instance, node, device) (ibpulse_device_pcie_bytes_per_second) / max by (cluster, job, instance, node, device) (ibpulse_device_pcie_max_bytes_per_second) < 0.99
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.pcieFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepCauseFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulsePcieDegraded.severity }}
      component: fabric
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        A device's PCIe link runs below the speed or width that both its ends support.
      description: |-
        The PCIe path of {{`{{ $labels.device }}`}} on {{`{{ $labels.instance }}`}} runs at {{`{{ $value | humanizePercentage }}`}} of its possible rate: a link trained at a lower speed or width. First step: reseat the card, or check the slot.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulsePcieDegraded.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- if or ($rule.alerts.IBPulseUnreliable.enabled) }}
- name: ibpulse-truth
  interval: {{ $rule.alertInterval }}
  {{- with int $rule.limit }}
  limit: {{ . }}
  {{- end }}
  {{- with $rule.extraGroupFields }}{{ toYaml . | nindent 2 }}{{- end }}
  rules:
  {{- if $rule.alerts.IBPulseUnreliable.enabled }}
  - alert: IBPulseUnreliable
    expr: |-
      (
        max by (cluster, job, instance, node, device, port, reason) (ibpulse_unreliable) == 1
        or label_replace(max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}) == 0 unless on (cluster, job) job:ibpulse_silent_exporters:ratio > {{ $rule.thresholds.missingShare }}, "reason", "no-answer", "", "")
        or label_replace(max by (cluster, job, instance, node) (up{job=~"{{ $jobs }}", job!~".*-gateway"}) == 1 unless on (cluster, job, instance, node) max by (cluster, job, instance, node) (ibpulse_build_info), "reason", "no-statistics", "", "")
        or label_replace(job:ibpulse_silent_exporters:ratio > {{ $rule.thresholds.missingShare }}, "reason", "exporters-missing", "", "")
        or label_replace(cluster:ibpulse_missing_nodes:ratio > {{ $rule.thresholds.missingShare }}, "reason", "exporters-missing", "", "")
        or label_replace(absent(up{job=~"{{ $jobs }}", job!~".*-gateway"}), "reason", "exporters-missing", "", "")
      ){{ with $rule.maintenance }} unless on (cluster, node) ({{ . }}){{ end }}
    for: |-
      {{ $rule.thresholds.unreliableFor }}
    keep_firing_for: |-
      {{ $rule.thresholds.keepFor }}
    labels:
      severity: |-
        {{ $rule.alerts.IBPulseUnreliable.severity }}
      component: instrument
      {{- with $rule.additionalRuleLabels }}{{ toYaml . | nindent 6 }}{{- end }}
    annotations:
      summary: |-
        The numbers of ibpulse cannot be trusted, or there are none.
      description: |-
        The numbers of {{`{{ if $labels.instance }}`}}{{`{{ $labels.instance }}`}}{{`{{ else }}`}}a part of the fleet{{`{{ end }}`}} cannot be trusted: {{`{{ $labels.reason }}`}}{{`{{ if $labels.device }}`}}, {{`{{ $labels.device }}`}}{{`{{ end }}`}}{{`{{ if $labels.port }}`}}:{{`{{ $labels.port }}`}}{{`{{ end }}`}}. Jobs are not affected. First step: `ibpulse doctor` on the node, or, without an answer, the pod and the node itself.
      runbook_url: |-
        {{ $rule.runbooks | trimSuffix "/" }}/IBPulseUnreliable.md
      dashboard_url: |-
        {{ $rule.grafana | trimSuffix "/" }}/d/ibpulse-node?var-cluster={{`{{ $labels.cluster }}`}}&var-job={{`{{ $labels.job }}`}}&var-instance={{`{{ $labels.instance }}`}}
      {{- with $rule.additionalRuleAnnotations }}{{ toYaml . | nindent 6 }}{{- end }}
  {{- end }}
{{- end }}
{{- end }}
