package main

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// addWebhooks serves admission and conversion; on every replica, leader or not (OPS-032).
func addWebhooks(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates, qualifies inplace.Options) error {
	options := admission.Options{
		Namespace:        o.installNamespace,
		SecretName:       o.secretName,
		ServiceName:      o.serviceName,
		Host:             o.webhookHost,
		FilesOnly:        o.filesOnly(),
		External:         gates.Enabled(features.EnableExternalCerts),
		ForbidPrivileged: !o.allowPrivileged,
		ProtectDeletion:  gates.Enabled(features.ResourcesDeletionProtection),
		Port:             o.webhookPort,
		CertDir:          o.certDir,
		InitTimeout:      o.webhookInitTimeout,
		TemplateDefaults: !gates.Enabled(features.TemplateNoDefaults),
		InPlace:          qualifies,
		Daemon:           gates.Enabled(features.KruiseDaemon),
		PullJobs:         gates.Enabled(features.ImagePullJobGate),
		Pods:             gates.Enabled(features.PodWebhook),
		GateAllPods:      gates.Enabled(features.KruisePodReadinessGate),
		HostPorts:        gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates),
	}
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}
	return admission.Setup(ctx, mgr, options)
}
