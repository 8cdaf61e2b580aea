{{- define "muster.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "muster.account" -}}
{{- default (include "muster.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The lease's name is that of the configuration, so that the right to it fits. */}}
{{- define "muster.lease" -}}
{{- dig "leaderElection" "name" "muster" .Values.config -}}
{{- end -}}

{{- define "muster.config" -}}
{{- $own := dict "apiVersion" "config.muster.sh/v1alpha1" "kind" "SchedulerConfiguration" "namespace" .Release.Namespace "healthAddress" (printf "0.0.0.0:%d" (int .Values.port)) -}}
{{- range $key, $_ := $own -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s is decided by the chart; remove it" $key) -}}
{{- end -}}
{{- end -}}
{{- mustMerge $own .Values.config | toYaml -}}
{{- end -}}

{{/* What a running process does not read again: a digest of it in the pods' template makes new pods. */}}
{{- define "muster.fixed" -}}
{{- $config := include "muster.config" . | fromYaml -}}
{{- pick $config "schedulerNames" "namespace" "clientConnection" "leaderElection" "binder" "grouping" "healthAddress" "logFormat" | toJson | sha256sum -}}
{{- end -}}

{{/* Lease and BindRequests are the namespace's, the roles for users the cluster's: a second release is told so. */}}
{{- define "muster.alone" -}}
{{- if .Release.IsInstall -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := default (dict) .metadata.labels -}}
{{- $other := index $labels "app.kubernetes.io/instance" -}}
{{- if and (eq (default "" (index $labels "app.kubernetes.io/name")) "muster") (ne (default "" $other) $.Release.Name) -}}
{{- fail (printf "release %s of Muster is in namespace %s: they would share its lease and its BindRequests; install this one in a namespace of its own, with other config.schedulerNames" $other $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if .Values.rbac.aggregateRoles -}}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "muster-pod-group-viewer" -}}
{{- $marks := default (dict) (dig "metadata" "annotations" (dict) $role) -}}
{{- $owner := printf "%s/%s" (index $marks "meta.helm.sh/release-namespace") (index $marks "meta.helm.sh/release-name") -}}
{{- if and (hasKey $marks "meta.helm.sh/release-name") (ne $owner (printf "%s/%s" .Release.Namespace .Release.Name)) -}}
{{- fail (printf "the roles for users and the kinds are those of release %s: add --set rbac.aggregateRoles=false --set crds.install=false, and give this one other config.schedulerNames" $owner) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
