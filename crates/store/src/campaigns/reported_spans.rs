//! Spans that instances reported during a campaign, and restored secrets.

use std::collections::BTreeSet;

use super::reader::read_trial;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{InstanceId, Span, TraceId, TrialId};
use rusqlite::OptionalExtension;

use super::call_row::{COLUMNS, CallReader, payload_size, read_span};
use super::campaign_writer::trial_cell;
use super::reader::{Reader, segments_with};
use crate::error::StoreError;
use crate::sealed::Column;
use crate::secrets::{Key, restore, restore_reported, unseal};
use crate::sqlite::damaged_row;

/// A span that an instance reported.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredReport {
    /// The trial.
    pub trial: TrialId,
    /// The sender, if known.
    pub instance: Option<InstanceId>,
    /// The span.
    pub span: ReportedSpan,
}

impl Reader {
    /// Restores the secrets of calls.
    pub(crate) fn restored(&self, rows: Vec<(i64, Span)>, key: &Key) -> Result<Vec<Span>, StoreError> {
        let mut spans = Vec::with_capacity(rows.len());
        for (row, mut span) in rows {
            let sealed = {
                let connection = self.lock();
                let read = || -> rusqlite::Result<Option<Vec<u8>>> {
                    let sql = "SELECT sealed FROM secrets WHERE span = ?1";
                    connection.prepare_cached(sql)?.query_row([row], |row| row.get(0)).optional()
                };
                read().map_err(StoreError::sqlite("read", &self.path))?
            };
            if let Some(sealed) = sealed {
                restore(
                    &mut span,
                    unseal(key, &sealed).map_err(|error| StoreError::unseal(&self.path, &error))?,
                );
            }
            spans.push(span);
        }
        Ok(spans)
    }

    /// Spans that instances reported in a trial, in the order of arrival.
    pub fn reported_in(&self, trial: TrialId) -> Result<Vec<StoredReport>, StoreError> {
        self.reports("trial = ?1", &[trial.key().cast_signed()], None)
    }

    /// Spans that instances reported about a trace, over all trials.
    pub fn reported_of_trace(&self, trace: TraceId) -> Result<Vec<StoredReport>, StoreError> {
        let ids = [(trace.0 as u64).cast_signed(), ((trace.0 >> 64) as u64).cast_signed()];
        self.reports("trace_low = ?1 AND trace_high = ?2", &ids, None)
    }

    /// As [`Self::reported_of_trace`], with secrets restored.
    pub fn restored_reports_of_trace(
        &self,
        trace: TraceId,
        key: &Key,
    ) -> Result<Vec<StoredReport>, StoreError> {
        let ids = [(trace.0 as u64).cast_signed(), ((trace.0 >> 64) as u64).cast_signed()];
        self.reports("trace_low = ?1 AND trace_high = ?2", &ids, Some(key))
    }

    /// The trials that have spans of a trace, recorded or reported.
    pub fn trials_of(&self, trace: TraceId) -> Result<BTreeSet<TrialId>, StoreError> {
        let (low, high) = ((trace.0 as u64).cast_signed(), ((trace.0 >> 64) as u64).cast_signed());
        let mut trials = BTreeSet::new();
        self.read(|connection, _| {
            let sql = "SELECT EXISTS (SELECT 1 FROM spans WHERE id BETWEEN ?1 AND ?2 AND trial = ?3 \
                       AND trace_low = ?4 AND trace_high = ?5)";
            let mut is_in = connection.prepare_cached(sql)?;
            for (trial, first, last) in segments_with(connection, trace)? {
                if is_in.query_row((first, last, trial, low, high), |row| row.get(0))? {
                    trials.insert(read_trial(trial)?);
                }
            }
            let sql = "SELECT DISTINCT trial FROM reported WHERE trace_low = ?1 AND trace_high = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query((low, high))?;
            while let Some(row) = rows.next()? {
                trials.insert(read_trial(row.get(0)?)?);
            }
            Ok(())
        })?;
        Ok(trials)
    }

    /// The latest calls and reported spans, at most `most` of each and so many that each fit into `bytes`, in the
    /// order of arrival.
    pub(crate) fn latest(
        &self,
        most: usize,
        bytes: usize,
    ) -> Result<(Vec<Span>, Vec<StoredReport>), StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut calls = Vec::new();
        let mut left = bytes;
        self.read(|connection, names| {
            let sql = format!("SELECT {COLUMNS} FROM spans ORDER BY id DESC LIMIT ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query([most])?;
            while let Some(row) = rows.next()? {
                let reader = CallReader { connection, names, opener: &self.opener };
                let call = read_span(row, reader)?;
                let weight = size_of::<Span>() + call.payload.as_deref().map_or(0, payload_size);
                let Some(rest) = left.checked_sub(weight) else { break };
                left = rest;
                calls.push(call);
            }
            Ok(())
        })?;
        calls.reverse();
        let first = self.first_report(most, bytes).map_err(StoreError::sqlite("read", &self.path))?;
        Ok((calls, self.reports("id >= ?1", &[first], None)?))
    }

    /// The first of the latest reported spans that are no more than `most` and fit into `bytes`.
    fn first_report(&self, most: i64, bytes: usize) -> rusqlite::Result<i64> {
        let connection = self.lock();
        let sql = "SELECT id, length(json) FROM reported ORDER BY id DESC LIMIT ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([most])?;
        let (mut first, mut left) = (i64::MAX, bytes);
        while let Some(row) = rows.next()? {
            let length = usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX);
            let Some(rest) = left.checked_sub(length) else { break };
            (first, left) = (row.get(0)?, rest);
        }
        Ok(first)
    }

    fn reports(&self, which: &str, ids: &[i64], key: Option<&Key>) -> Result<Vec<StoredReport>, StoreError> {
        let read = || -> rusqlite::Result<Vec<(StoredReport, Option<Vec<u8>>)>> {
            let connection = self.lock();
            let sql = format!("SELECT trial, instance, json, sealed FROM reported WHERE {which} ORDER BY id");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(rusqlite::params_from_iter(ids), |row| {
                let instance = row.get::<_, Option<String>>(1)?.and_then(|text| text.parse().ok());
                let trial = read_trial(row.get(0)?)?;
                let cell = trial_cell(Column::Report, trial);
                let json = self.opener.open_text(&connection, cell, row.get_ref(2)?)?;
                let span = serde_json::from_str(&json);
                let span = span.map_err(|error| damaged_row(error.to_string()))?;
                Ok((StoredReport { trial, instance, span }, row.get(3)?))
            })?;
            rows.collect()
        };
        let rows = read().map_err(StoreError::sqlite("read", &self.path))?;
        let restore = |(mut report, sealed): (StoredReport, Option<Vec<u8>>)| {
            if let (Some(key), Some(sealed)) = (key, sealed) {
                let originals =
                    unseal(key, &sealed).map_err(|error| StoreError::unseal(&self.path, &error))?;
                restore_reported(&mut report.span, originals);
            }
            Ok(report)
        };
        rows.into_iter().map(restore).collect()
    }
}
