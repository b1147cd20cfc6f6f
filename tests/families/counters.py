"""The counter files of each driver with plausible numbers, as text. Facts only: no tree is written here.

Names are those that the driver's source registers. Each number differs from its neighbours, so that a value under a
wrong name shows. `index` tells the devices of a node apart.
"""

from __future__ import annotations

from collections.abc import Mapping

WORDS = 205_143_497_464_492


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{value}\n" for name, value in values.items()}


def _zeros(names: str) -> dict[str, int]:
    return dict.fromkeys(names.split(), 0)


def _rising(names: str, first: int, prefix: str = "") -> dict[str, int]:
    return {f"{prefix}{name}": first + place for place, name in enumerate(names.split())}


def pma(index: int = 0, **changed: int) -> dict[str, str]:
    """The 21 files of the extended table of `core/sysfs.c`, of a link that has had some small trouble."""
    packets = 412_887_305_106
    values = {
        "VL15_dropped": 2,
        "excessive_buffer_overrun_errors": 0,
        "link_downed": 1,
        "link_error_recovery": 0,
        "local_link_integrity_errors": 0,
        "multicast_rcv_packets": 1812 + index,
        "multicast_xmit_packets": 21 + index,
        "port_rcv_constraint_errors": 0,
        "port_rcv_data": WORDS - 14_809_690_243 + index,
        "port_rcv_errors": 0,
        "port_rcv_packets": packets + 5 + index,
        "port_rcv_remote_physical_errors": 0,
        "port_rcv_switch_relay_errors": 0,
        "port_xmit_constraint_errors": 0,
        "port_xmit_data": WORDS + index,
        "port_xmit_discards": 3,
        "port_xmit_packets": packets + index,
        "port_xmit_wait": 118_274_113 + index,
        "symbol_error": 4,
        "unicast_rcv_packets": packets - 1807 + index,
        "unicast_xmit_packets": packets - 21 + index,
    }
    return _texts(values | changed)


PUBLISHED_PMA = pma() | _texts(
    {
        "VL15_dropped": 0,
        "excessive_buffer_overrun_errors": 15,
        "link_downed": 255,
        "multicast_rcv_packets": 0,
        "multicast_xmit_packets": 0,
        "port_rcv_data": 205_128_687_774_249,
        "port_rcv_packets": 240_037_171_331,
        "port_rcv_switch_relay_errors": 2,
        "port_xmit_data": 205_143_497_464_492,
        "port_xmit_discards": 65_535,
        "port_xmit_packets": 242_071_897_216,
        "port_xmit_wait": 4_294_967_295,
        "symbol_error": 0,
        "unicast_rcv_packets": 240_037_171_331,
        "unicast_xmit_packets": 242_071_897_216,
    }
)


def idle_pma() -> dict[str, str]:
    """The same table of a port that never carried anything."""
    return dict.fromkeys(pma(), "0\n")


LEGACY_NAMES = frozenset(pma()) - {
    "unicast_rcv_packets",
    "unicast_xmit_packets",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
}


def legacy_pma(**changed: int) -> dict[str, str]:
    """The table without the unicast and multicast files."""
    return {name: text for name, text in pma(**changed).items() if name in LEGACY_NAMES}


def mlx5(index: int = 0, *, roce: bool = False, lifespan_ms: int = 10, **changed: int) -> dict[str, str]:
    """All default counters of `mlx5/counters.c`; on an InfiniBand link the RoCE ones stay 0."""
    congestion = 1 if roce else 0
    values = {
        "duplicate_request": 5,
        "implied_nak_seq_err": 1,
        "lifespan": lifespan_ms,
        "local_ack_timeout_err": 7 + index,
        "np_cnp_sent": 90_311 * congestion,
        "np_ecn_marked_roce_packets": 1_441_982 * congestion,
        "out_of_buffer": 6,
        "out_of_sequence": 2_208 + index,
        "packet_seq_err": 31,
        "req_cqe_error": 128,
        "req_cqe_flush_error": 127,
        "req_remote_access_errors": 0,
        "req_remote_invalid_request": 0,
        "req_rnr_retries_exceeded": 0,
        "req_transport_retries_exceeded": 2,
        "resp_cqe_error": 64,
        "resp_cqe_flush_error": 63,
        "resp_local_length_error": 0,
        "resp_remote_access_errors": 0,
        "rnr_nak_retry_err": 9,
        "roce_adp_retrans": 44 * congestion,
        "roce_adp_retrans_to": 12 * congestion,
        "roce_slow_restart": 3 * congestion,
        "roce_slow_restart_cnps": 8 * congestion,
        "roce_slow_restart_trans": 2 * congestion,
        "rp_cnp_handled": 88_127 * congestion,
        "rp_cnp_ignored": 0,
        "rx_atomic_requests": 18,
        "rx_dct_connect": 0,
        "rx_icrc_encapsulated": congestion,
        "rx_read_requests": 77_120_553,
        "rx_write_requests": 1_903_221_118 + index,
    }
    return _texts(values | changed)


def idle_mlx5() -> dict[str, str]:
    """The same of a port that never carried anything."""
    return dict.fromkeys(mlx5(), "0\n") | {"lifespan": "10\n"}


def efa(index: int = 0, *, newer: bool = False) -> dict[str, str]:
    """Counters of an EFA port, `efa/efa_verbs.c`; kernel 7.3 adds those of retransmission."""
    values = {
        "lifespan": 12,
        "rdma_read_bytes": 9_120_553_102 + index,
        "rdma_read_resp_bytes": 9_120_551_001 + index,
        "rdma_read_wr_err": 1,
        "rdma_read_wrs": 1_220_014,
        "rdma_write_bytes": 71_205_443_118_022 + index,
        "rdma_write_recv_bytes": 71_205_441_903_877 + index,
        "rdma_write_wr_err": 2,
        "rdma_write_wrs": 88_201_553,
        "recv_bytes": 4_410_229_113,
        "recv_wrs": 5_510_228,
        "rx_bytes": 71_988_120_004_117 + index,
        "rx_drops": 3,
        "rx_pkts": 8_112_440_229,
        "send_bytes": 4_410_998_201,
        "send_wrs": 5_511_002,
        "tx_bytes": 71_988_301_122_904 + index,
        "tx_pkts": 8_112_502_118,
    }
    retransmission = {
        "impaired_remote_conn_events": 4,
        "retrans_bytes": 88_120_320,
        "retrans_pkts": 10_757,
        "retrans_timeout_events": 19,
        "unresponsive_remote_events": 5,
    }
    return _texts(values | (retransmission if newer else {}))


EFA_DEVICE = _texts(
    {
        "alloc_pd_err": 0,
        "alloc_ucontext_err": 0,
        "cmds_err": 1,
        "completed_cmds": 20_118,
        "create_ah_err": 0,
        "create_cq_err": 0,
        "create_qp_err": 0,
        "keep_alive_rcvd": 81_220,
        "lifespan": 12,
        "mmap_err": 0,
        "no_completion_cmds": 0,
        "reg_mr_err": 0,
        "submitted_cmds": 20_119,
    }
)

IONIC_ZEROS = _zeros(
    "req_rx_cqe_err req_rx_cqe_flush req_rx_dup_response req_rx_inval_pkts req_rx_oper_err req_rx_rmt_acc_err"
    " req_rx_rmt_req_err req_tx_loc_acc_err req_tx_loc_oper_err req_tx_loc_sgl_inv_err req_tx_mem_mgmt_err"
    " resp_rx_cqe_err resp_rx_cqe_flush resp_rx_inval_request resp_rx_loc_len_err resp_rx_loc_oper_err"
    " resp_rx_outof_atomic resp_tx_loc_sgl_inv_err resp_tx_rmt_acc_err resp_tx_rmt_inval_req_err resp_tx_rmt_oper_err"
)


def ionic(index: int = 0, *, newer: bool = False) -> dict[str, str]:
    """Counters of an ionic port, which its firmware names; a newer one counts what it sends again."""
    values = IONIC_ZEROS | {
        "lifespan": 10,
        "req_rx_impl_nak_seq_err": 2,
        "req_rx_pkt_seq_err": 37,
        "req_rx_rnr_retry_err": 4,
        "req_tx_retry_excd_err": 1,
        "resp_rx_dup_request": 29,
        "resp_rx_outof_buf": 6,
        "resp_rx_outouf_seq": 112,
        "resp_tx_pkt_seq_err": 33,
        "resp_tx_rnr_retry_err": 3,
        "rx_rdma_cnp_pkts": 81_440,
        "rx_rdma_ecn_pkts": 1_220_871,
        "rx_rdma_mcast_bytes": 4_160,
        "rx_rdma_mcast_pkts": 52,
        "rx_rdma_ucast_bytes": 870_171_188_670_112 + index,
        "rx_rdma_ucast_pkts": 212_444_137_001 + index,
        "tx_rdma_cnp_pkts": 80_919,
        "tx_rdma_mcast_bytes": 8_320,
        "tx_rdma_mcast_pkts": 104,
        "tx_rdma_ucast_bytes": 880_171_188_670_554 + index,
        "tx_rdma_ucast_pkts": 214_885_544_003 + index,
    }
    again = {
        "resp_rx_ccl_cts_outouf_seq": 0,
        "resp_rx_s0_table_err": 0,
        "rx_rdma_ccl_cts_bytes": 66_112,
        "rx_rdma_ccl_cts_pkts": 1_033,
        "rx_rdma_mtu_discard_pkts": 0,
        "tx_rdma_ack_timeout": 9,
        "tx_rdma_ccl_cts_ack_timeout": 0,
        "tx_rdma_ccl_cts_bytes": 66_240,
        "tx_rdma_ccl_cts_pkts": 1_035,
        "tx_rdma_ccl_cts_retx_bytes": 0,
        "tx_rdma_ccl_cts_retx_pkts": 0,
        "tx_rdma_retx_bytes": 40_960,
        "tx_rdma_retx_pkts": 10,
    }
    return _texts(values | (again if newer else {}))


IRDMA_IP = (
    "InDiscards InMcastOctets InMcastPkts InOctets InPkts InReasmRqd InTruncatedPkts"
    " OutMcastOctets OutMcastPkts OutNoRoutes OutOctets OutPkts OutSegRqd"
)
IRDMA_RDMA = "InRdmaReads InRdmaSends InRdmaWrites OutRdmaReads OutRdmaSends OutRdmaWrites RdmaBnd RdmaInv"
IRDMA_TCP = "InOptErrors InProtoErrors InSegs OutSegs RetransSegs"
IRDMA_GEN3 = {
    "CRC errors": 1,
    "Nak Sequence Error": 21,
    "Nak Sequence Error Implied": 3,
    "RNR received": 12,
    "RNR sent": 14,
    "RTO": 6,
    "Rcvd Out of order packets": 118,
    "Rx atomics": 40,
    "Tx atomics": 41,
    "ird limit count": 2,
    "ord limit count": 5,
}


def irdma(*, newer: bool) -> dict[str, str]:
    """Counters of an irdma port, `irdma/verbs.c`: in 7.3 names with spaces, and without the tcp and iw prefixes."""
    values: dict[str, int] = {"RxECNMrkd": 8_112, "RxUDP": 91_220_118, "TxUDP": 91_220_554, "rxVlanErrors": 0}
    values |= {"cnpHandled": 411, "cnpIgnored": 2, "cnpSent": 398, "lifespan": 10}
    values |= _rising(IRDMA_IP, 4_000, "ip4") | _rising(IRDMA_IP, 6_000, "ip6")
    values |= {"ip4InOctets": 8_120_443_001_212, "ip4OutOctets": 8_120_449_870_003}
    if newer:
        return _texts(values | _rising(IRDMA_RDMA, 700) | _rising(IRDMA_TCP, 30) | IRDMA_GEN3)
    return _texts(values | _rising(IRDMA_RDMA, 700, "iw") | _rising(IRDMA_TCP, 30, "tcp"))


BNXT_ZEROS = _zeros(
    "bad_resp_err dup_req local_protection_err local_qp_op_err mem_mgmt_op_err missing_resp remote_access_err"
    " remote_invalid_req_err remote_op_err res_cmp_err res_cq_load_err res_exceed_max res_exceeds_wqe"
    " res_invalid_dup_rkey res_irrq_oflow res_length_mismatch res_mem_err res_opcode_err res_rem_inv_err"
    " res_rx_domain_err res_rx_invalid_rkey res_rx_no_perm res_rx_pci_err res_rx_range_err res_srq_err"
    " res_srq_load_err res_tx_domain_err res_tx_invalid_rkey res_tx_no_perm res_tx_pci_err res_tx_range_err"
    " res_unaligned_atomic res_unsup_opcode res_wqe_format_err rx_roce_discards rx_roce_errors tx_roce_discards"
    " tx_roce_errors unrecoverable_err"
)


def bnxt(*, roce_only: bool = True) -> dict[str, str]:
    """Counters of a bnxt_re port, `bnxt_re/hw_counters.c`; only a device with extended statistics counts RoCE alone."""
    values = BNXT_ZEROS | {
        "active_ahs": 12,
        "active_cqs": 130,
        "active_mrs": 1_204,
        "active_pds": 9,
        "active_qps": 512,
        "lifespan": 10,
        "max_retry_exceeded": 1,
        "oos_drop_count": 51,
        "recoverable_errors": 4,
        "rnr_naks_rcvd": 8,
        "rx_bytes": 5_520_118_334_221,
        "rx_pkts": 1_402_118_002,
        "seq_err_naks_rcvd": 23,
        "to_retransmits": 17,
        "tx_bytes": 5_520_994_120_008,
        "tx_pkts": 1_402_220_455,
        "watermark_qps": 530,
    }
    extended = {
        "rx_cnp_pkts": 40_112,
        "rx_ecn_marked_pkts": 610_229,
        "rx_out_of_buffer": 2,
        "rx_roce_good_bytes": 5_519_880_224_119,
        "rx_roce_good_pkts": 1_401_991_220,
        "rx_roce_only_bytes": 5_519_990_004_551,
        "rx_roce_only_pkts": 1_401_998_117,
        "tx_cnp_pkts": 39_877,
        "tx_read_req": 88_121,
        "tx_roce_only_bytes": 5_520_811_002_397,
        "tx_roce_only_pkts": 1_402_101_334,
        "tx_write_req": 771_220_144,
    }
    return _texts(values | (extended if roce_only else {}))


HFI1_PORT = _texts(
    {
        "DmaWait": 50_646,
        "LoopPkts": 115_262,
        "OtherNak": 0,
        "PktDrop": 134,
        "RcAcks": 19_918_731,
        "RcDelayComp": 3_109_215,
        "RcDupRew": 0,
        "RcQacks": 233,
        "RcResend": 2_079,
        "RcSeqNak": 7,
        "RcTimeOut": 3,
        "RcvCstrErr": 0,
        "RcvHdrOvr0": 0,
        "RcvHdrOvr1": 0,
        "RcvHdrOvr10": 0,
        "RnrNak": 18,
        "RxPkt": 88_120_331,
        "RxWords": 2_203_118_400_117,
        "SwLinkDown,32": 1,
        "SwLinkUp,32": 2,
        "TxPkt": 88_120_556,
        "TxWait": 7_110_223,
        "TxWords": 2_203_220_554_003,
        "UnknownFrame": 0,
        "XmitCstrErr": 0,
        "XmitDscd": 5,
        "lifespan": 10,
    }
)
HFI1_DEVICE = _texts({"Cce LATriggered": 0, "CceSdmaInt,32": 44_120, "DcDroppedPkt": 0, "PioWait": 3, "lifespan": 10})

MANA_ZEROS = _zeros(
    "dup_rx_requests general_hw_error nak_access_error nak_inv_read nak_inv_req nak_opp_error num_qps_congested"
    " num_qps_recovered requester_implicit_nak requester_readresp_psn_mismatch"
    " requester_rnr_nak_retries_exceeded requestor_local_prot_error responder_local_len_error"
    " responder_local_qp_error responder_malformed_wqe responder_rem_access_error total_fatal_error"
)
MANA_PORT = _texts(
    MANA_ZEROS
    | {
        "current_rate": 100_000,
        "lifespan": 10,
        "rate_inc_events": 41,
        "received_cnps": 902,
        "requester_oos_nak": 13,
        "requester_retries_exceeded": 1,
        "requester_rnr_nak": 5,
        "requester_timeout": 45,
        "responder_dup_request": 2,
        "responder_oos": 71,
        "responder_rnr_nak": 6,
        "rx_bytes": 1_120_443_880_211,
        "rx_packets": 301_220_114,
        "rx_read_requests": 220,
        "rx_send_requests": 81_204,
        "rx_write_requests": 4_420_118,
        "tx_bytes": 1_120_991_204_553,
        "tx_packets": 301_441_902,
    }
)
MANA_DEVICE = _texts({"lifespan": 10, "received_ecns": 5_120, "sent_cnps": 880})

_RXE_EVENTS = {
    "ack_deferred": 0,
    "completer_retry_err": 3,
    "duplicate_request": 11,
    "lifespan": 12,
    "link_downed": 1,
    "out_of_seq_request": 8,
    "rcvd_pkts": 120_334,
    "rcvd_rnr_err": 2,
    "rcvd_seq_err": 5,
    "rdma_recvs": 40,
    "rdma_sends": 41,
    "retry_exceeded_err": 0,
    "retry_rnr_exceeded_err": 0,
    "send_err": 0,
    "send_rnr_err": 4,
    "sent_pkts": 128_077,
}
OLD_RXE = _texts(_RXE_EVENTS)
RXE = _texts(_RXE_EVENTS | {"rcvd_bytes": 5_776_032, "sent_bytes": 136_832_000})


def rxe_pma() -> dict[str, str]:
    """Counters of rxe in 7.3: five of the 21 files live, the others always 0."""
    live = {"port_xmit_data": 34_208_000, "port_rcv_data": 1_444_008, "link_downed": 1}
    return idle_pma() | _texts(live | {"port_xmit_packets": 128_077, "port_rcv_packets": 120_334})
