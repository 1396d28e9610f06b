{{/* The name of every object: that of the release, with the chart's unless it is in it. */}}
{{- define "ratekeeper.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What pods are selected by; it cannot change in an upgrade. */}}
{{- define "ratekeeper.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ratekeeper.labels" -}}
{{ include "ratekeeper.selector" . }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ratekeeper.policies" -}}
{{- default (printf "%s-policies" (include "ratekeeper.name" .)) .Values.existingPoliciesConfigMap -}}
{{- end -}}

{{/* The URL of the store, without a password: that comes from a file. What is embedded has a folder of its own in the
     volume, whose root may hold lost+found and belongs to root. */}}
{{- define "ratekeeper.store" -}}
{{- $store := .Values.store -}}
{{- $scheme := ternary "rediss" "redis" $store.tls -}}
{{- $user := ternary (printf "%s@" $store.user) "" (ne $store.user "") -}}
{{- $hosts := join "," $store.hosts -}}
{{- if eq $store.kind "embedded" -}}
{{- ternary "memory+dir:///var/lib/ratekeeper/data" "memory" .Values.persistence.enabled -}}
{{- else if eq $store.kind "redis" -}}
{{- $urls := list -}}
{{- range $store.hosts -}}{{- $urls = append $urls (printf "%s://%s%s/%d" $scheme $user . (int $store.database)) -}}{{- end -}}
{{- join "," $urls -}}
{{- else if eq $store.kind "sentinel" -}}
{{- printf "%s+sentinel://%s%s/%s/%d" $scheme $user $hosts $store.service (int $store.database) -}}
{{- else -}}
{{- printf "%s+cluster://%s%s" $scheme $user $hosts -}}
{{- end -}}
{{- end -}}

{{/* What no schema can say: values that need each other. */}}
{{- define "ratekeeper.check" -}}
{{- $store := .Values.store -}}
{{- $shared := ne $store.kind "embedded" -}}
{{- if and (not $shared) (gt (int .Values.replicas) 1) -}}
{{- fail "replicas: got more than 1 with store.kind embedded; expected 1, or a store that replicas share (redis, sentinel or cluster)" -}}
{{- end -}}
{{- if and (not $shared) (or $store.hosts $store.urlSecret.name) -}}
{{- fail "store.kind: got embedded with store.hosts or store.urlSecret; expected redis, sentinel or cluster" -}}
{{- end -}}
{{- if and $shared (not $store.hosts) (not $store.urlSecret.name) -}}
{{- fail (printf "store.hosts: got none for store.kind %s; expected host:port, or store.urlSecret.name" $store.kind) -}}
{{- end -}}
{{- if and $store.hosts $store.urlSecret.name -}}
{{- fail "store.urlSecret: got a URL beside store.hosts; expected one of them" -}}
{{- end -}}
{{- if and (eq $store.kind "sentinel") $store.hosts (not $store.service) -}}
{{- fail "store.service: got none; expected what the sentinels call the primary, such as mymaster" -}}
{{- end -}}
{{- if and (eq $store.kind "cluster") (ne (int $store.database) 0) -}}
{{- fail "store.database: got a number for a cluster; expected 0, the only one it has" -}}
{{- end -}}
{{- if and .Values.admin.enabled (not .Values.admin.tokensSecret.name) -}}
{{- fail "admin.tokensSecret.name: got none with admin.enabled; expected a Secret with the lines of `ratekeeper token new`" -}}
{{- end -}}
{{- if and (not .Values.policies) (not .Values.existingPoliciesConfigMap) -}}
{{- fail "policies: got none; expected a policy, or existingPoliciesConfigMap" -}}
{{- end -}}
{{- end -}}
