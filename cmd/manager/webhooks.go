package main

import (
	"fmt"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/registry"
)

// webhookOptions returns the options of the webhooks but for the environment, which depends on the API server and
// the caches. stopping is closed when the manager receives the termination signal.
func webhookOptions(o *options, gates *features.Gates, stopping <-chan struct{}) (admission.Options, error) {
	options := admission.Options{
		Kinds:            registry.Kinds,
		SecretName:       o.secretName,
		ServiceName:      o.serviceName,
		Host:             o.webhookHost,
		FilesOnly:        o.filesOnly(),
		External:         gates.Enabled(features.EnableExternalCerts),
		ForbidPrivileged: !o.kinds.AllowPrivileged,
		Port:             o.webhookPort,
		CertDir:          o.certDir,
		Stopping:         stopping,
		InitTimeout:      o.webhookInitTimeout,
		ClientCAFile:     o.webhookClientCAFile,
		ClientNames:      o.webhookClientNames,
		Pods:             gates.Enabled(features.PodWebhook),
		GateAllPods:      gates.Enabled(features.KruisePodReadinessGate),
		ProtectionLog:    o.protectionLog,
	}
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return options, fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}

	return options, nil
}
