{{- define "muster.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* The processes: one of all components, whose name is "", or one for each component. */}}
{{- define "muster.components" -}}
{{- $components := list "" -}}
{{- if .Values.split.enabled -}}
{{- if not (dig "leaderElection" "leaderElect" true .Values.config) -}}
{{- fail "split.enabled: the components know of each other by their leases; remove config.leaderElection.leaderElect" -}}
{{- end -}}
{{- $components = list "scheduler" "binder" "controllers" -}}
{{- end -}}
{{- $components | toYaml -}}
{{- end -}}

{{/* From here on the context may have a `component`, where what is made belongs to the process of one component. */}}
{{- define "muster.process" -}}
{{- list (include "muster.name" .) (get . "component") | compact | join "-" -}}
{{- end -}}

{{- define "muster.account" -}}
{{- list (default (include "muster.name" .) .Values.serviceAccount.name) (get . "component") | compact | join "-" -}}
{{- end -}}

{{/* All processes of the release. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Those of one Deployment. */}}
{{- define "muster.replicas" -}}
{{ include "muster.selector" . }}
{{- with get . "component" }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ get . "component" | default "scheduler" }}
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

{{/* The lease's name is that of the configuration, so that the right to it fits; a binder's and the controllers' of
their own is this one with their component. */}}
{{- define "muster.lease" -}}
{{- $where := dig "leaderElection" "namespace" "" .Values.config -}}
{{- if and $where (ne $where .Release.Namespace) -}}
{{- fail (printf "config.leaderElection.namespace is %s: the rights to the leases are given in the release's namespace, %s; remove it" $where .Release.Namespace) -}}
{{- end -}}
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

{{/* What a running process does not take over from a changed file; a change of it replaces the pods. */}}
{{- define "muster.fixed" -}}
{{- $fixed := pick (include "muster.config" . | fromYaml) "schedulerNames" "namespace" "clientConnection" "leaderElection" "binder" "grouping" "healthAddress" "logFormat" -}}
{{- $fixed | toJson | sha256sum | trunc 16 -}}
{{- end -}}

{{/* Two schedulers in one namespace would share BindRequests and the lease. */}}
{{- define "muster.alone" -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "muster") (ne (get $labels "app.kubernetes.io/instance") $.Release.Name) -}}
{{- fail (printf "namespace %s has Muster already, as release %s; another one needs a namespace of its own" $.Release.Namespace (get $labels "app.kubernetes.io/instance")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.resources" -}}
{{- $own := dict -}}
{{- with get . "component" -}}
{{- $own = (get $.Values.split .).resources -}}
{{- end -}}
{{- $own | default .Values.resources | toYaml -}}
{{- end -}}
