//! Metrics for the registry of `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Metrics;
use super::families::{Family, Kind, Value};

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        Families(self.families()).encode(encoder)
    }
}

/// Metrics as something that a registry collects.
#[derive(Debug)]
pub struct Families(pub Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in &family.samples {
                if sample.labels.is_empty() {
                    encode(&mut metric, family.kind, &sample.value)?;
                } else {
                    encode(&mut metric.encode_family(&sample.labels)?, family.kind, &sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(series: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (value, kind) {
        (Value::Whole(value), Kind::Counter) => series.encode_counter::<NoLabelSet, u64, u64>(value, None),
        (Value::Whole(value), _) => series.encode_gauge(&i64::try_from(*value).unwrap_or(i64::MAX)),
        (Value::Buckets(sum, buckets), _) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            series.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}
